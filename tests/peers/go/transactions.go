// Short transactions, each of which begins as soon as the one before is committed: one client writes a record to each
// partition of a topic, another one reads the topic in a group, writes a record, and commits its offsets.
package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const endTime = 60 * time.Second

// Transactions is 0 for as many as there is time for until the input ends.
type shortTransactions struct {
	Topic                                  string
	Partitions, Milliseconds, Transactions int
}

type maker struct {
	asked     plan
	ctx       context.Context
	said      sync.Mutex
	committed map[string]int
}

func makeTransactions(asked plan, input *bufio.Reader) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if asked.ShortTransactions.Transactions == 0 {
		go func() {
			input.ReadBytes('\n')
			stop()
		}()
	}
	all := &maker{asked: asked, ctx: ctx, committed: map[string]int{}}
	kinds := map[string]func(string) error{"produce": all.produce, "offsets": all.offsets}
	var running sync.WaitGroup
	for kind, work := range kinds {
		running.Go(func() {
			for all.goesOn(kind) {
				if err := work(kind); err != nil {
					all.tell(kind, err)
				}
			}
		})
	}
	running.Wait()
	for kind := range kinds {
		fmt.Printf("made %s %d\n", kind, all.committed[kind])
	}
}

func (m *maker) goesOn(kind string) bool {
	m.said.Lock()
	defer m.said.Unlock()
	wanted := m.asked.ShortTransactions.Transactions
	return m.ctx.Err() == nil && (wanted == 0 || m.committed[kind] < wanted)
}

func (m *maker) tell(kind string, err error) {
	m.said.Lock()
	defer m.said.Unlock()
	fmt.Printf("error %s %s\n", kind, strings.ReplaceAll(err.Error(), "\n", " "))
}

func (m *maker) made(kind string) {
	m.said.Lock()
	defer m.said.Unlock()
	m.committed[kind]++
}

func (m *maker) options(kind string, more ...kgo.Opt) []kgo.Opt {
	return append(more, kgo.SeedBrokers(strings.Split(m.asked.Bootstrap, ",")...), kgo.TransactionalID("go-"+kind),
		kgo.DefaultProduceTopic(m.asked.ShortTransactions.Topic), kgo.ProducerLinger(0))
}

func (m *maker) length() time.Duration {
	return time.Duration(m.asked.ShortTransactions.Milliseconds) * time.Millisecond
}

// produce goes on until its client can go on no more.
func (m *maker) produce(kind string) error {
	client, err := kgo.NewClient(m.options(kind, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for m.goesOn(kind) {
		length := time.After(m.length())
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		records := []*kgo.Record{}
		for partition := range m.asked.ShortTransactions.Partitions {
			records = append(records, &kgo.Record{Partition: int32(partition), Value: make([]byte, 20)})
		}
		ending, cancel := context.WithTimeout(context.Background(), endTime)
		failure := client.ProduceSync(ending, records...).FirstErr()
		<-length
		if failure != nil {
			m.tell(kind, failure)
		}
		err := client.EndTransaction(ending, kgo.TransactionEndTry(failure == nil))
		cancel()
		if err != nil {
			return err
		}
		if failure == nil {
			m.made(kind)
		}
	}
	return nil
}

// offsets does, too. A transaction that ends without a commit since its group is shared out anew is no failure.
func (m *maker) offsets(kind string) error {
	topic := m.asked.ShortTransactions.Topic
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	session, err := kgo.NewGroupTransactSession(m.options(kind, kgo.ConsumerGroup("go"), kgo.ConsumeTopics(topic), start, kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return err
	}
	defer session.Close()
	for m.goesOn(kind) {
		length, cancel := context.WithTimeout(m.ctx, m.length())
		session.PollRecords(length, 20)
		if err := session.Begin(); err != nil {
			cancel()
			return err
		}
		ending, ended := context.WithTimeout(context.Background(), endTime)
		failure := session.ProduceSync(ending, &kgo.Record{Value: make([]byte, 20)}).FirstErr()
		<-length.Done()
		cancel()
		if failure != nil {
			m.tell(kind, failure)
		}
		committed, err := session.End(ending, kgo.TransactionEndTry(failure == nil))
		ended()
		if err != nil {
			return err
		}
		if committed {
			m.made(kind)
		}
	}
	return nil
}
