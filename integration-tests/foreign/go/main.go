// Command probe is one client of a test on franz-go: probe ROLE --option value …
// The roles and options stand in ../README.md.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type options map[string]string

func (o options) text(name, otherwise string) string {
	if value, ok := o[name]; ok {
		return value
	}
	if otherwise == "" {
		fail("--%s is missing", name)
	}
	return otherwise
}

func (o options) number(name string, otherwise int64) int64 {
	value, ok := o[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		fail("--%s: %v", name, err)
	}
	return n
}

func (o options) client(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(o.text("bootstrap", "")),
		kgo.ClientID(o.text("member", "")),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}, more...)...)
	if err != nil {
		fail("client: %v", err)
	}
	return client
}

// eventLog appends one line an event, each with one write, so that what stands in the file survives a kill.
type eventLog struct {
	mu     sync.Mutex
	file   *os.File
	member string
}

func (l *eventLog) write(event string, partition int32, offset int64, key []byte, deliveries int32) {
	name := "-"
	if key != nil {
		name = string(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.file, "%d\t%s\t%s\t%d\t%d\t%s\t%d\n",
		time.Now().UnixNano(), l.member, event, partition, offset, name, deliveries)
}

// limit says when a consumer stops: standard input ended, enough records came, or none for a time.
type limit struct {
	asked   atomic.Bool
	records int64
	idle    time.Duration
	last    time.Time
}

func newLimit(o options) *limit {
	l := &limit{
		records: o.number("records", 1<<62),
		idle:    time.Duration(o.number("idle-ms", 60_000)) * time.Millisecond,
		last:    time.Now(),
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		l.asked.Store(true)
	}()
	return l
}

func (l *limit) reached() bool {
	return l.asked.Load() || l.records <= 0 || time.Since(l.last) > l.idle
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func main() {
	if len(os.Args) < 2 {
		fail("usage: probe produce|consume|share --option value …")
	}
	o := options{}
	for i := 2; i+1 < len(os.Args); i += 2 {
		o[os.Args[i][2:]] = os.Args[i+1]
	}
	file, err := os.OpenFile(o.text("log", ""), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		fail("log: %v", err)
	}
	log := &eventLog{file: file, member: o.text("member", "")}
	switch os.Args[1] {
	case "produce":
		produce(o, log)
	case "consume":
		consume(o, log)
	case "share":
		share(o, log)
	default:
		fail("unknown role %s", os.Args[1])
	}
	log.write("end", -1, -1, nil, 0)
}

func produce(o options, log *eventLog) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client := o.client(kgo.ProducerBatchCompression(codecs[o.text("compression", "none")]))
	defer client.Close()
	random := rand.New(rand.NewSource(o.number("seed", 1)))
	pause := time.Duration(o.number("pause-us", 0)) * time.Microsecond
	var failed atomic.Pointer[error]
	ctx := context.Background()
	for i := range o.number("records", 1000) {
		var key []byte
		if random.Int63n(100) >= o.number("keyless-percent", 0) {
			key = fmt.Appendf(nil, "k%d", random.Int63n(o.number("keys", 10)))
		}
		record := &kgo.Record{Topic: o.text("topic", ""), Key: key, Value: fmt.Appendf(nil, "v%d", i)}
		client.Produce(ctx, record, func(r *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			log.write("produced", r.Partition, r.Offset, r.Key, 0)
		})
		time.Sleep(pause)
	}
	if err := client.Flush(ctx); err != nil {
		fail("flush: %v", err)
	}
	if err := failed.Load(); err != nil {
		fail("produce: %v", *err)
	}
}

func consume(o options, log *eventLog) {
	client := o.client(
		kgo.ConsumerGroup(o.text("group", "")),
		kgo.ConsumeTopics(o.text("topic", "")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	defer client.Close()
	limit := newLimit(o)
	for !limit.reached() {
		fetches := poll(client, 500)
		fetches.EachRecord(func(r *kgo.Record) {
			log.write("consumed", r.Partition, r.Offset, r.Key, 0)
			limit.records--
			limit.last = time.Now()
		})
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				fail("commit: %v", err)
			}
		}
	}
	client.LeaveGroup()
}

func share(o options, log *eventLog) {
	explicit := o.text("ack", "explicit") == "explicit"
	opts := []kgo.Opt{
		kgo.ShareGroup(o.text("group", "")),
		kgo.ConsumeTopics(o.text("topic", "")),
		kgo.ShareMaxRecords(int32(o.number("max-poll-records", 500))),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			for _, result := range results {
				if result.Err != nil {
					fmt.Fprintf(os.Stderr, "acknowledge: %v\n", result.Err)
					log.write("ack-failed", result.Partition, -1, nil, 0)
				}
			}
		}),
	}
	if o.text("strict", "no") == "yes" {
		opts = append(opts, kgo.ShareMaxRecordsStrict())
	}
	client := o.client(opts...)
	random := rand.New(rand.NewSource(o.number("seed", 1)))
	serviceMin := o.number("service-us-min", 0)
	serviceMax := max(serviceMin, o.number("service-us-max", 0))
	releasePercent := o.number("release-percent", 0)
	commit := o.text("commit", "poll")
	limit := newLimit(o)
	log.write("ready", -1, -1, nil, 0)
	for !limit.reached() {
		records := poll(client, int(o.number("max-poll-records", 500))).Records()
		for i, r := range records {
			if limit.asked.Load() {
				// Without a word the client accepts at close what it has handed out.
				for _, rest := range records[i:] {
					rest.Ack(kgo.AckRelease)
				}
				break
			}
			log.write("start", r.Partition, r.Offset, r.Key, r.DeliveryCount())
			us := serviceMin + random.Int63n(serviceMax-serviceMin+1)
			time.Sleep(time.Duration(us) * time.Microsecond)
			// The third delivery succeeds always: a record must not reach the group's delivery limit.
			if explicit && r.DeliveryCount() < 3 && random.Int63n(100) < releasePercent {
				log.write("release", r.Partition, r.Offset, r.Key, r.DeliveryCount())
				r.Ack(kgo.AckRelease)
			} else {
				log.write("success", r.Partition, r.Offset, r.Key, r.DeliveryCount())
				limit.records--
				if explicit {
					r.Ack(kgo.AckAccept)
				}
			}
			limit.last = time.Now()
			if commit == "record" {
				flush(client)
			}
		}
		if commit == "sync" && len(records) > 0 {
			flush(client)
		}
	}
	if commit != "none" {
		flush(client)
	}
	client.Close()
}

func poll(client *kgo.Client, records int) kgo.Fetches {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fetches := client.PollRecords(ctx, records)
	for _, e := range fetches.Errors() {
		if ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "poll: %s-%d: %v\n", e.Topic, e.Partition, e.Err)
		}
	}
	return fetches
}

func flush(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.FlushAcks(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "flush: %v\n", err)
	}
}
