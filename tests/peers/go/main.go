// franz-go: writes, reads, or is a member of a group, as conversation.py in ../python says; or makes short transactions.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const readTime = 30 * time.Second

type header struct {
	name  string
	value []byte
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

// A row has bytes in base64, which is what encoding/json makes of them, and null for none.
type row struct {
	key, value  []byte
	timestampMs *int64
	headers     []header
}

func (r *row) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.key, &r.value, &r.timestampMs, &r.headers})
}

func (r row) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{r.key, r.value, r.timestampMs, r.headers})
}

type toWrite struct {
	topic, codec string
	rows         []row
}

func (w *toWrite) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&w.topic, &w.codec, &w.rows})
}

type toRead struct {
	topic string
	count int
}

func (r *toRead) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.topic, &r.count})
}

type plan struct {
	Bootstrap    string
	Group, Topic string
	Write        []toWrite
	Read         []toRead

	ShortTransactions *shortTransactions
	// Of a cell alone (secured.go).
	StepMs int `json:"step_ms"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func say(answer map[string]any, err error) {
	answer["error"] = nil
	if err != nil {
		answer["error"] = err.Error()
	}
	line, _ := json.Marshal(answer)
	fmt.Println(string(line))
}

func write(bootstrap string, wanted toWrite) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.DefaultProduceTopic(wanted.topic),
		kgo.ProducerBatchCompression(codecs[wanted.codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(500*time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(wanted.rows))
	for _, row := range wanted.rows {
		record := &kgo.Record{Key: row.key, Value: row.value}
		if row.timestampMs != nil {
			record.Timestamp = time.UnixMilli(*row.timestampMs)
		}
		for _, header := range row.headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.name, Value: header.value})
		}
		records = append(records, record)
	}
	return client.ProduceSync(context.Background(), records...).FirstErr()
}

func read(bootstrap string, wanted toRead) ([]row, error) {
	rows := []row{}
	start := map[string]map[int32]kgo.Offset{wanted.topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start))
	if err != nil {
		return rows, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	for len(rows) < wanted.count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return rows, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			timestampMs := record.Timestamp.UnixMilli()
			headers := []header{}
			for _, found := range record.Headers {
				headers = append(headers, header{found.Key, found.Value})
			}
			rows = append(rows, row{record.Key, record.Value, &timestampMs, headers})
		})
	}
	return rows, nil
}

func takePart(asked plan, input *bufio.Reader) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	leave, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		for {
			if _, err := input.ReadBytes('\n'); err != nil {
				failed <- nil
				return
			}
			if err := client.CommitUncommittedOffsets(leave); err != nil {
				failed <- err
				return
			}
		}
	}()
	for leave.Err() == nil {
		client.PollFetches(leave).EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
	}
	return <-failed
}

func main() {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		panic(err)
	}
	var asked plan
	if err := json.Unmarshal(line, &asked); err != nil {
		panic(err)
	}
	if asked.StepMs != 0 {
		doSecured(line, input)
		return
	}
	if asked.ShortTransactions != nil {
		makeTransactions(asked, input)
		return
	}
	if asked.Group != "" {
		if err := takePart(asked, input); err != nil {
			panic(err)
		}
		return
	}
	for _, wanted := range asked.Write {
		say(map[string]any{"written": wanted.topic}, write(asked.Bootstrap, wanted))
	}
	for _, wanted := range asked.Read {
		rows, err := read(asked.Bootstrap, wanted)
		say(map[string]any{"read": wanted.topic, "rows": rows}, err)
	}
}
