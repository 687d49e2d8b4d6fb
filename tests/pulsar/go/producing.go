package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Sent is a message to publish. Without a value, it is null.
type Sent struct {
	Key, OrderingKey string
	Value            *string
	// The value as JSON, for a schema.
	Fields       map[string]any
	Repeat       int
	Properties   map[string]string
	EventTime    int64
	DeliverAfter int64
	Sequence     *int64
}

var compressions = map[string]pulsar.CompressionType{
	"":       pulsar.NoCompression,
	"LZ4":    pulsar.LZ4,
	"ZLIB":   pulsar.ZLib,
	"ZSTD":   pulsar.ZSTD,
	"SNAPPY": pulsar.SNAPPY,
}

func (d *driver) schema(r *Request) (pulsar.Schema, error) {
	switch r.Schema {
	case "":
		return nil, nil
	case "STRING":
		return pulsar.NewStringSchema(nil), nil
	case "JSON":
		return pulsar.NewJSONSchema(r.Definition, nil), nil
	case "AVRO":
		return pulsar.NewAvroSchema(r.Definition, nil), nil
	case "INT64":
		return pulsar.NewInt64Schema(nil), nil
	}
	return nil, fmt.Errorf("no schema %q", r.Schema)
}

func (d *driver) producer(r *Request) (Answer, error) {
	schema, err := d.schema(r)
	if err != nil {
		return nil, err
	}
	options := pulsar.ProducerOptions{
		Topic:                   r.Topic,
		DisableBatching:         !r.Batching,
		BatchingMaxPublishDelay: 50 * time.Millisecond,
		CompressionType:         compressions[r.Compression],
		EnableChunking:          r.Chunking,
		Schema:                  schema,
		SendTimeout:             20 * time.Second,
	}
	if r.KeyBased {
		options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	}
	producer, err := d.client.CreateProducer(options)
	if err != nil {
		return nil, err
	}
	d.producers[r.Name], d.schemas[r.Name] = producer, schema
	return Answer{"producer": producer.Name(), "lastSequence": producer.LastSequenceID()}, nil
}

func (s *Sent) message(schema pulsar.Schema) *pulsar.ProducerMessage {
	message := &pulsar.ProducerMessage{
		Key:         s.Key,
		OrderingKey: s.OrderingKey,
		Properties:  s.Properties,
		SequenceID:  s.Sequence,
	}
	if s.EventTime > 0 {
		message.EventTime = time.UnixMilli(s.EventTime)
	}
	if s.DeliverAfter > 0 {
		message.DeliverAfter = time.Duration(s.DeliverAfter) * time.Millisecond
	}
	switch {
	case s.Fields != nil:
		message.Value = s.Fields
	case s.Value != nil && schema != nil:
		message.Value = s.Value
	case s.Value != nil:
		message.Payload = []byte(strings.Repeat(*s.Value, max(s.Repeat, 1)))
	}
	return message
}

// send publishes without waiting between messages, and answers with their ids.
func (d *driver) send(r *Request) (Answer, error) {
	producer, found := d.producers[r.Name]
	if !found {
		return nil, fmt.Errorf("no producer %q", r.Name)
	}
	ids, failures := make([]string, len(r.Messages)), make([]error, len(r.Messages))
	var wait sync.WaitGroup
	wait.Add(len(r.Messages))
	for at := range r.Messages {
		message := r.Messages[at].message(d.schemas[r.Name])
		producer.SendAsync(context.Background(), message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				defer wait.Done()
				if failures[at] = err; err == nil {
					ids[at] = text(id)
				}
			})
	}
	if err := producer.FlushWithCtx(context.Background()); err != nil {
		return nil, err
	}
	wait.Wait()
	return Answer{"ids": ids}, errors.Join(failures...)
}
