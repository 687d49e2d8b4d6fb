// A driver of Pulsar's Go client: one JSON request a line in, one JSON answer a line out.
//
//	go run . pulsar://127.0.0.1:6650 [CA-FILE [TOKEN-FILE]]
//	{"op": "producer", "name": "p", "topic": "t", "batching": true}
//	{"op": "send", "name": "p", "messages": [{"key": "k", "value": "v"}]}
//
// An answer has "error" if the client reported one. Names stand for producers, consumers, readers
// and table views until they are closed; message ids are "ledger:entry:partition:index".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// Request has the fields of all operations.
type Request struct {
	Op, Name, Topic, Sub, Type, Pattern, From, Id, Compression, Schema, Definition string

	Topics                                                            []string
	Messages                                                          []Sent
	Max, TimeoutMs, Queue                                             int
	Time                                                              int64
	Batching, KeyBased, Chunking, Compacted, Inclusive, Earliest, Ack bool
	BatchIndex                                                        bool
}

// Answer is printed as JSON.
type Answer map[string]any

type driver struct {
	client    pulsar.Client
	producers map[string]pulsar.Producer
	consumers map[string]pulsar.Consumer
	readers   map[string]pulsar.Reader
	views     map[string]pulsar.TableView
	schemas   map[string]pulsar.Schema
	received  map[string]pulsar.Message
}

func main() {
	options := pulsar.ClientOptions{
		URL:              os.Args[1],
		Logger:           log.DefaultNopLogger(),
		OperationTimeout: 10 * time.Second,
	}
	if len(os.Args) > 2 {
		options.TLSTrustCertsFilePath, options.TLSValidateHostname = os.Args[2], true
	}
	if len(os.Args) > 3 {
		options.Authentication = pulsar.NewAuthenticationTokenFromFile(os.Args[3])
	}
	client, err := pulsar.NewClient(options)
	if err != nil {
		panic(err)
	}
	d := &driver{
		client:    client,
		producers: map[string]pulsar.Producer{},
		consumers: map[string]pulsar.Consumer{},
		readers:   map[string]pulsar.Reader{},
		views:     map[string]pulsar.TableView{},
		schemas:   map[string]pulsar.Schema{},
		received:  map[string]pulsar.Message{},
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64*1024*1024)
	for lines.Scan() {
		answer, err := d.handle(lines.Bytes())
		if err != nil {
			answer = Answer{"error": err.Error()}
		}
		encoded, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(encoded))
	}
}

func (d *driver) handle(line []byte) (Answer, error) {
	request := &Request{}
	if err := json.Unmarshal(line, request); err != nil {
		return nil, err
	}
	operations := map[string]func(*Request) (Answer, error){
		"producer":   d.producer,
		"send":       d.send,
		"consumer":   d.consumer,
		"receive":    d.receive,
		"ack":        d.ack,
		"nack":       d.nack,
		"seek":       d.seek,
		"reader":     d.reader,
		"read":       d.read,
		"view":       d.view,
		"entries":    d.entries,
		"partitions": d.partitions,
		"close":      d.close,
	}
	operation, found := operations[request.Op]
	if !found {
		return nil, fmt.Errorf("no operation %q", request.Op)
	}
	return operation(request)
}
