package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var types = map[string]pulsar.SubscriptionType{
	"":           pulsar.Exclusive,
	"Exclusive":  pulsar.Exclusive,
	"Shared":     pulsar.Shared,
	"Failover":   pulsar.Failover,
	"Key_Shared": pulsar.KeyShared,
}

func text(id pulsar.MessageID) string {
	return fmt.Sprintf("%d:%d:%d:%d", id.LedgerID(), id.EntryID(), id.PartitionIdx(), id.BatchIdx())
}

func parse(id string) (pulsar.MessageID, error) {
	switch id {
	case "", "earliest":
		return pulsar.EarliestMessageID(), nil
	case "latest":
		return pulsar.LatestMessageID(), nil
	}
	var ledger, entry int64
	var partition, index int32
	_, err := fmt.Sscanf(id, "%d:%d:%d:%d", &ledger, &entry, &partition, &index)
	return pulsar.NewMessageID(ledger, entry, index, partition), err
}

func (d *driver) shown(message pulsar.Message, schema pulsar.Schema) Answer {
	id := text(message.ID())
	d.received[id] = message
	shown := Answer{
		"id":           id,
		"topic":        message.Topic(),
		"key":          message.Key(),
		"value":        base64.StdEncoding.EncodeToString(message.Payload()),
		"properties":   message.Properties(),
		"orderingKey":  message.OrderingKey(),
		"publishTime":  message.PublishTime().UnixMilli(),
		"producer":     message.ProducerName(),
		"redeliveries": message.RedeliveryCount(),
		"schema":       message.SchemaVersion(),
	}
	if !message.EventTime().IsZero() {
		shown["eventTime"] = message.EventTime().UnixMilli()
	}
	if schema != nil {
		fields := map[string]any{}
		if err := message.GetSchemaValue(&fields); err != nil {
			shown["schemaError"] = err.Error()
		}
		shown["fields"] = fields
	}
	return shown
}

func (d *driver) consumer(r *Request) (Answer, error) {
	schema, err := d.schema(r)
	if err != nil {
		return nil, err
	}
	position := pulsar.SubscriptionPositionLatest
	if r.Earliest {
		position = pulsar.SubscriptionPositionEarliest
	}
	consumer, err := d.client.Subscribe(pulsar.ConsumerOptions{
		Topic:                       r.Topic,
		Topics:                      r.Topics,
		TopicsPattern:               r.Pattern,
		Name:                        r.Name,
		SubscriptionName:            r.Sub,
		Type:                        types[r.Type],
		SubscriptionInitialPosition: position,
		ReceiverQueueSize:           r.Queue,
		ReadCompacted:               r.Compacted,
		StartMessageIDInclusive:     r.Inclusive,
		NackRedeliveryDelay:         100 * time.Millisecond,
		MaxPendingChunkedMessage:    10,
		Schema:                      schema,

		EnableBatchIndexAcknowledgment: r.BatchIndex,
	})
	if err != nil {
		return nil, err
	}
	d.consumers[r.Name], d.schemas[r.Name] = consumer, schema
	return Answer{}, nil
}

// receive answers with up to `max` messages: fewer, if the next one does not come in `timeoutMs`.
func (d *driver) receive(r *Request) (Answer, error) {
	consumer, found := d.consumers[r.Name]
	if !found {
		return nil, fmt.Errorf("no consumer %q", r.Name)
	}
	messages := []Answer{}
	for len(messages) < r.Max {
		limit, cancel := context.WithTimeout(
			context.Background(), time.Duration(r.TimeoutMs)*time.Millisecond)
		message, err := consumer.Receive(limit)
		cancel()
		if limit.Err() != nil && err != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, d.shown(message, d.schemas[r.Name]))
		if r.Ack {
			if err := consumer.Ack(message); err != nil {
				return nil, err
			}
		}
	}
	return Answer{"messages": messages}, nil
}

// ack acknowledges a message that was received; all up to it if `type` is "Cumulative".
func (d *driver) ack(r *Request) (Answer, error) {
	if r.Type == "Cumulative" {
		return Answer{}, d.consumers[r.Name].AckCumulative(d.received[r.Id])
	}
	return Answer{}, d.consumers[r.Name].Ack(d.received[r.Id])
}

func (d *driver) nack(r *Request) (Answer, error) {
	d.consumers[r.Name].Nack(d.received[r.Id])
	return Answer{}, nil
}

// seek moves a consumer or a reader to a time, or to an id.
func (d *driver) seek(r *Request) (Answer, error) {
	reader, isReader := d.readers[r.Name]
	if r.Time > 0 && isReader {
		return Answer{}, reader.SeekByTime(time.UnixMilli(r.Time))
	}
	if r.Time > 0 {
		return Answer{}, d.consumers[r.Name].SeekByTime(time.UnixMilli(r.Time))
	}
	id, err := parse(r.Id)
	if err != nil {
		return nil, err
	}
	if isReader {
		return Answer{}, reader.Seek(id)
	}
	return Answer{}, d.consumers[r.Name].Seek(id)
}

func (d *driver) reader(r *Request) (Answer, error) {
	start, err := parse(r.From)
	if err != nil {
		return nil, err
	}
	schema, err := d.schema(r)
	if err != nil {
		return nil, err
	}
	reader, err := d.client.CreateReader(pulsar.ReaderOptions{
		Topic:                   r.Topic,
		StartMessageID:          start,
		StartMessageIDInclusive: r.Inclusive,
		ReadCompacted:           r.Compacted,
		Schema:                  schema,
	})
	if err != nil {
		return nil, err
	}
	d.readers[r.Name], d.schemas[r.Name] = reader, schema
	return Answer{}, nil
}

// read answers with all messages that there are.
func (d *driver) read(r *Request) (Answer, error) {
	reader, found := d.readers[r.Name]
	if !found {
		return nil, fmt.Errorf("no reader %q", r.Name)
	}
	messages := []Answer{}
	for reader.HasNext() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		message, err := reader.Next(limit)
		cancel()
		if err != nil {
			return nil, err
		}
		messages = append(messages, d.shown(message, d.schemas[r.Name]))
	}
	return Answer{"messages": messages}, nil
}

func (d *driver) view(r *Request) (Answer, error) {
	view, err := d.client.CreateTableView(pulsar.TableViewOptions{
		Topic:           r.Topic,
		Schema:          pulsar.NewBytesSchema(nil),
		SchemaValueType: reflect.TypeOf([]byte{}),
	})
	if err != nil {
		return nil, err
	}
	d.views[r.Name] = view
	return Answer{}, nil
}

func (d *driver) entries(r *Request) (Answer, error) {
	entries := map[string]string{}
	for key, value := range d.views[r.Name].Entries() {
		entries[key] = string(value.([]byte))
	}
	return Answer{"entries": entries}, nil
}

func (d *driver) partitions(r *Request) (Answer, error) {
	names, err := d.client.TopicPartitions(r.Topic)
	return Answer{"topics": names}, err
}

func (d *driver) close(r *Request) (Answer, error) {
	if producer, found := d.producers[r.Name]; found {
		producer.Close()
		delete(d.producers, r.Name)
	}
	if consumer, found := d.consumers[r.Name]; found {
		consumer.Close()
		delete(d.consumers, r.Name)
	}
	if reader, found := d.readers[r.Name]; found {
		reader.Close()
		delete(d.readers, r.Name)
	}
	if view, found := d.views[r.Name]; found {
		view.Close()
		delete(d.views, r.Name)
	}
	return Answer{}, nil
}
