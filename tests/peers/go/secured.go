// Logins one after another, a cell a line, as SecuredClient.java beside this directory says.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type cell struct {
	Id, Bootstrap, Protocol, Ca, Cert, Mechanism, User, Secret string
	KeyTab, Cache, Service, Realm, Krb5                        string
	Topic, Group                                               string
	IsToken, Held                                              bool
	StepMs                                                     int `json:"step_ms"`
}

// brokerErrors remembers why connections did not come about: what the client itself reports may be that a time is over.
type brokerErrors struct {
	lock   sync.Mutex
	last   error
	cancel context.CancelFunc
}

// forget is called before a client is made: a client connects at once, and may be refused before its first step begins.
func (b *brokerErrors) forget() {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.last = nil
}

// step is the time for a step, which ends with the first login or handshake that fails: franz-go would try it again.
func (b *brokerErrors) step(ms int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	b.lock.Lock()
	defer b.lock.Unlock()
	b.cancel = cancel
	if b.last != nil && isFinal(b.last) {
		cancel()
	}
	return ctx, cancel
}

// isFinal says whether a client gains nothing by another attempt.
func isFinal(err error) bool {
	found := classOf(err)
	return found == "authentication failed" || found == "handshake failed" || found == "login failed"
}

func (b *brokerErrors) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		b.lock.Lock()
		b.last = err
		if isFinal(err) {
			b.cancel()
		}
		b.lock.Unlock()
	}
}

func (b *brokerErrors) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	b.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, err)
}

func (b *brokerErrors) why(err error) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.last != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrRecordTimeout)) {
		return fmt.Errorf("%w after %w", err, b.last)
	}
	return err
}

func classOf(err error) string {
	var fromBroker *kerr.Error
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var verification *tls.CertificateVerificationError
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "topic refused"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "group refused"
	case errors.Is(err, kerr.SaslAuthenticationFailed), strings.Contains(err.Error(), "unexpected data in oauth response"):
		return "authentication failed"
	case errors.As(err, &authority), errors.As(err, &invalid), errors.As(err, &alert), errors.As(err, &verification):
		return "handshake failed"
	case strings.Contains(err.Error(), "remote error: tls"):
		return "handshake failed"
	case strings.Contains(err.Error(), "krb") || strings.Contains(err.Error(), "KRB"):
		return "login failed"
	case errors.Is(err, io.EOF) || strings.Contains(err.Error(), "connection reset"):
		return "disconnected"
	case errors.As(err, &fromBroker):
		return "other: " + fromBroker.Message
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	}
	return "other: " + fmt.Sprintf("%T", err)
}

func (c cell) login() (sasl.Mechanism, error) {
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.User, Pass: c.Secret}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.User, Pass: c.Secret, IsToken: c.IsToken}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.User, Pass: c.Secret, IsToken: c.IsToken}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: c.Secret}.AsMechanism(), nil
	case "GSSAPI":
		settings, err := krbconfig.Load(c.Krb5)
		if err != nil {
			return nil, err
		}
		made := func(context.Context) (kerberos.Auth, error) {
			var user *client.Client
			if c.Cache != "" {
				tickets, err := credentials.LoadCCache(c.Cache)
				if err != nil {
					return kerberos.Auth{}, err
				}
				if user, err = client.NewFromCCache(tickets, settings); err != nil {
					return kerberos.Auth{}, err
				}
			} else {
				keys, err := keytab.Load(c.KeyTab)
				if err != nil {
					return kerberos.Auth{}, err
				}
				user = client.NewWithKeytab(c.User, c.Realm, keys, settings, client.DisablePAFXFAST(true))
			}
			return kerberos.Auth{Client: user, Service: c.Service, PersistAfterAuth: false}, nil
		}
		return kerberos.Kerberos(made), nil
	}
	return nil, nil
}

func (c cell) options(seen *brokerErrors) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap),
		kgo.WithHooks(seen),
		kgo.RecordDeliveryTimeout(time.Duration(c.StepMs) * time.Millisecond),
		kgo.RetryTimeout(time.Duration(c.StepMs) * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.UnknownTopicRetries(2),
	}
	if strings.Contains(c.Protocol, "SSL") {
		authorities := x509.NewCertPool()
		text, err := os.ReadFile(c.Ca)
		if err != nil {
			return nil, err
		}
		authorities.AppendCertsFromPEM(text)
		settings := &tls.Config{RootCAs: authorities, ServerName: "localhost"}
		if c.Cert != "" {
			pair, err := tls.LoadX509KeyPair(c.Cert, c.Cert)
			if err != nil {
				return nil, err
			}
			// Sent even if the broker names other authorities, as Java does with one key.
			settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		options = append(options, kgo.DialTLSConfig(settings))
	}
	login, err := c.login()
	if err != nil {
		return nil, err
	}
	if login != nil {
		options = append(options, kgo.SASL(login))
	}
	return options, nil
}

// doSecured does every cell of the input, of which `line` is the first.
func doSecured(line []byte, input *bufio.Reader) {
	for len(line) > 0 {
		var asked cell
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		asked.run(input)
		line, _ = input.ReadBytes('\n')
	}
}

func (c cell) run(input *bufio.Reader) {
	steps, texts := map[string]string{}, map[string]string{}
	note := func(name string, err error) {
		steps[name] = classOf(err)
		if err != nil {
			texts[name] = err.Error()
		}
	}
	seen := &brokerErrors{cancel: func() {}}
	options, err := c.options(seen)
	if err != nil {
		panic(err)
	}
	produce := func(client *kgo.Client) error {
		ctx, cancel := seen.step(c.StepMs)
		defer cancel()
		return seen.why(client.ProduceSync(ctx, &kgo.Record{Topic: c.Topic, Value: []byte("x")}).FirstErr())
	}
	consume := func(client *kgo.Client, toEnd bool) error {
		ctx, cancel := seen.step(c.StepMs)
		defer cancel()
		for {
			fetches := client.PollFetches(ctx)
			if toEnd && ctx.Err() != nil {
				return nil
			}
			if err := fetches.Err(); err != nil {
				return seen.why(err)
			}
			for _, failed := range fetches.Errors() {
				return seen.why(failed.Err)
			}
			if fetches.NumRecords() > 0 && !toEnd {
				return nil
			}
		}
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	note("produce", produce(producer))
	options = append(options, kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	seen.forget()
	consumer, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	// Without leaving: a broker that is not reached would be asked again and again.
	defer consumer.CloseAllowingRebalance()
	note("consume", consume(consumer, false))
	if c.Held {
		line, _ := json.Marshal(map[string]any{"id": c.Id, "held": true})
		fmt.Println(string(line))
		next, _ := input.ReadBytes('\n')
		var again struct {
			ToEnd bool `json:"to_end"`
		}
		if err := json.Unmarshal(next, &again); err != nil {
			panic(err)
		}
		seen.forget()
		note("produce again", produce(producer))
		seen.forget()
		note("consume again", consume(consumer, again.ToEnd))
	}
	answer, _ := json.Marshal(map[string]any{"id": c.Id, "steps": steps, "errors": texts})
	fmt.Println(string(answer))
}
