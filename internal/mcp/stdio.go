package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdio is a transport with one message a line. A line that is no message is answered with an error and passed over; the
// transport of the SDK would end the session.
type stdio struct {
	in  io.Reader
	out io.Writer
	// longest is how many bytes a line may have.
	longest int
}

// Connect implements sdk.Transport.
func (t stdio) Connect(context.Context) (sdk.Connection, error) {
	c := &stdioConn{
		out: t.out, lines: make(chan inputLine), closed: make(chan struct{}), methods: map[jsonrpc.ID]string{}, batches: map[jsonrpc.ID]*batch{},
	}
	go c.readLines(bufio.NewReader(t.in), t.longest)
	return c, nil
}

type inputLine struct {
	text []byte
	// long is true for a line that is too long, whose text is not kept.
	long bool
	err  error
}

type stdioConn struct {
	lines chan inputLine
	// queue has the messages of a batch that were not handed over yet.
	queue []jsonrpc.Message

	closeOnce sync.Once
	closed    chan struct{}

	mu  sync.Mutex // guards what follows, and keeps lines whole
	out io.Writer
	// methods are those of the calls that were not answered yet, batches what they came in, if they came in one.
	methods map[jsonrpc.ID]string
	batches map[jsonrpc.ID]*batch
}

// batch gathers the answers to the calls of a batch, which go out together.
type batch struct {
	open    int
	answers []json.RawMessage
}

// readLines reads to the end of the input or of the connection. It is a goroutine of its own because nothing can end a
// read of standard input.
func (c *stdioConn) readLines(in *bufio.Reader, longest int) {
	for {
		line, err := readLine(in, longest)
		if len(bytes.TrimSpace(line.text)) == 0 && !line.long {
			if err == nil {
				continue
			}
			line.err = err
		}
		select {
		case c.lines <- line:
		case <-c.closed:
			return
		}
		if line.err != nil {
			return
		}
	}
}

// readLine reads a line, the last one without a line end too.
func readLine(in *bufio.Reader, longest int) (line inputLine, err error) {
	for {
		var part []byte
		part, err = in.ReadSlice('\n')
		if line.long = line.long || len(line.text)+len(part) > longest; line.long {
			line.text = nil
		} else {
			line.text = append(line.text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Read implements sdk.Connection.
func (c *stdioConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, io.EOF
		case line := <-c.lines:
			if line.err != nil {
				return nil, line.err
			}
			if err := c.take(line); err != nil {
				return nil, err
			}
		}
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	return next, nil
}

// take puts the messages of a line into the queue and answers what is none.
func (c *stdioConn) take(line inputLine) error {
	if line.long {
		return c.refuse(nil, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("The message is longer than %d MiB. Pass large specs and files of events by their names.", maxMessage>>20))
	}
	var whole json.RawMessage
	if err := json.Unmarshal(line.text, &whole); err != nil {
		return c.refuse(nil, nil, jsonrpc.CodeParseError, fmt.Sprintf("The line is not valid JSON: %v. Every message is one line.", err))
	}
	var several []json.RawMessage
	if json.Unmarshal(whole, &several) != nil || several == nil {
		return c.takeOne(whole, nil)
	}
	if len(several) == 0 {
		return c.refuse(nil, nil, jsonrpc.CodeInvalidRequest, "A batch must have at least one message.")
	}
	b := &batch{open: 1} // itself, until all of it was taken
	for _, one := range several {
		if err := c.takeOne(one, b); err != nil {
			return err
		}
	}
	return c.settle(b, nil)
}

// takeOne takes a message; b is the batch that it is part of, nil for none.
func (c *stdioConn) takeOne(raw json.RawMessage, b *batch) error {
	msg, err := jsonrpc.DecodeMessage(raw)
	var members map[string]json.RawMessage
	malformed := json.Unmarshal(raw, &members) != nil || err != nil
	if _, ok := msg.(*jsonrpc.Response); ok && members["result"] == nil && members["error"] == nil {
		malformed = true // neither a request nor an answer to one
	}
	if malformed {
		return c.refuse(members["id"], b, jsonrpc.CodeInvalidRequest, `The message is no request of JSON-RPC: it must be an object with "jsonrpc":"2.0", a "method" and, for a call, an "id".`)
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		if params := bytes.TrimSpace(req.Params); len(params) > 0 && params[0] != '{' && string(params) != "null" {
			return c.refuse(members["id"], b, jsonrpc.CodeInvalidParams, `"params" must be an object.`)
		}
		c.mu.Lock()
		_, taken := c.methods[req.ID]
		if !taken {
			c.methods[req.ID] = req.Method
			if b != nil {
				c.batches[req.ID] = b
				b.open++
			}
		}
		c.mu.Unlock()
		if taken {
			return c.refuse(members["id"], b, jsonrpc.CodeInvalidRequest, "The id is that of a call that was not answered yet.")
		}
	}
	c.queue = append(c.queue, msg)
	return nil
}

// refuse answers something that is not handed over. id is what it has for an id, b the batch that it is part of.
func (c *stdioConn) refuse(id json.RawMessage, b *batch, code int, message string) error {
	if len(id) == 0 || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: int64(code), Message: message}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil {
		b.answers = append(b.answers, raw)
		return nil
	}
	return c.writeLine(raw)
}

// settle notes that a part of a batch has its answer, nil for none, and sends all of them after the last one.
func (c *stdioConn) settle(b *batch, answer json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled(b, answer)
}

func (c *stdioConn) settled(b *batch, answer json.RawMessage) error {
	if answer != nil {
		b.answers = append(b.answers, answer)
	}
	if b.open--; b.open > 0 || len(b.answers) == 0 {
		return nil
	}
	raw, err := json.Marshal(b.answers)
	if err != nil {
		return err
	}
	return c.writeLine(raw)
}

func (c *stdioConn) writeLine(raw []byte) error {
	_, err := c.out.Write(append(raw, '\n'))
	return err
}

// inward is what messages of the SDK say in terms of its own code.
var inward = regexp.MustCompile(`\bGo (value|struct)|\bmcp\.|jsonrpc2|unmarshal|reflect\.`)

// Write implements sdk.Connection.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := msg.(*jsonrpc.Response)
	var b *batch
	if ok {
		answer = outward(answer, c.methods[answer.ID])
		msg, b = answer, c.batches[answer.ID]
		delete(c.methods, answer.ID)
		delete(c.batches, answer.ID)
	}
	raw, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if b != nil {
		return c.settled(b, raw)
	}
	return c.writeLine(raw)
}

// outward is an answer whose error says what is wrong with the call, not what the SDK has run into with it.
func outward(answer *jsonrpc.Response, method string) *jsonrpc.Response {
	e, ok := errors.AsType[*jsonrpc.Error](answer.Error)
	text := ""
	if answer.Error != nil {
		text = answer.Error.Error()
	}
	if !inward.MatchString(text) {
		return answer
	}
	code := int64(jsonrpc.CodeInvalidParams)
	if ok {
		code = e.Code
	}
	return &jsonrpc.Response{ID: answer.ID, Error: &jsonrpc.Error{
		Code: code, Message: fmt.Sprintf(`The "params" of %s do not have the form that the protocol gives them.`, method),
	}}
}

// SessionID implements sdk.Connection.
func (c *stdioConn) SessionID() string { return "" }

// Close implements sdk.Connection.
func (c *stdioConn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}
