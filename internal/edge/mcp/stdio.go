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
	"slices"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// stdio is a transport with one message a line. An invalid line is answered with an error and skipped; the transport of
// the SDK would end the session.
type stdio struct {
	in  io.Reader
	out io.Writer
	// longest is how many bytes a line may have.
	longest int
}

// Connect implements sdk.Transport.
func (t stdio) Connect(context.Context) (sdk.Connection, error) {
	c := &stdioConn{
		out: t.out, lines: make(chan inputLine), closed: make(chan struct{}), calls: map[jsonrpc.ID]call{},
		open: map[string]jsonrpc.ID{},
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
	// calls are the unanswered calls by the ids that the SDK has for them, and open these ids by those that the client
	// has. last is the last id given. The SDK reads ids as numbers of 64 bits, which clients' ids need not be.
	calls map[jsonrpc.ID]call
	open  map[string]jsonrpc.ID
	last  int64
}

// call is one that was not answered yet.
type call struct {
	// id is the client's id of the call, which the answer repeats with the same text.
	id     json.RawMessage
	method string
	// batch is the batch that the call came in, nil for none.
	batch *batch
}

// batch gathers the answers to the calls of a batch, which go out together.
type batch struct {
	open    int
	answers []json.RawMessage
}

// readLines reads to the end of the input or of the connection. It has a goroutine of its own because nothing can
// interrupt a read of standard input.
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

// take puts the messages of a line into the queue and answers invalid ones.
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
	b := &batch{open: 1} // the batch itself, until all of it was taken
	for _, one := range several {
		if err := c.takeOne(one, b); err != nil {
			return err
		}
	}
	return c.settle(b, nil)
}

// takeOne takes a message; b is the batch that it is part of, nil for none.
func (c *stdioConn) takeOne(raw json.RawMessage, b *batch) error {
	const malformed = `The message is no request of JSON-RPC: it must be an object with "jsonrpc":"2.0", a "method" and, for a call, an "id".`
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return c.refuse(nil, b, jsonrpc.CodeInvalidRequest, malformed)
	}
	id, isCall := members["id"]
	if isCall = isCall && members["method"] != nil; isCall {
		c.last++
		members["id"] = strconv.AppendInt(nil, c.last, 10)
	}
	c.renameCancelled(members)
	known, err := json.Marshal(members)
	if err != nil {
		return err
	}

	// Messages that are neither a request nor an answer to one.
	msg, err := jsonrpc.DecodeMessage(known)
	_, answers := msg.(*jsonrpc.Response)
	if err != nil || answers && members["result"] == nil && members["error"] == nil {
		return c.refuse(id, b, jsonrpc.CodeInvalidRequest, malformed)
	}

	// A call, which needs an answer.
	if req, ok := msg.(*jsonrpc.Request); ok && isCall {
		if params := bytes.TrimSpace(req.Params); len(params) > 0 && params[0] != '{' && string(params) != "null" {
			return c.refuse(id, b, jsonrpc.CodeInvalidParams, `"params" must be an object.`)
		}
		c.mu.Lock()
		_, taken := c.open[string(id)]
		if !taken {
			c.calls[req.ID] = call{id, req.Method, b}
			c.open[string(id)] = req.ID
			if b != nil {
				b.open++
			}
		}
		c.mu.Unlock()
		if taken {
			return c.refuse(id, b, jsonrpc.CodeInvalidRequest, "The id is that of a call that was not answered yet.")
		}
	}
	c.queue = append(c.queue, msg)
	return nil
}

// renameCancelled replaces the id of the call that a message cancels by the id that the SDK has for it.
func (c *stdioConn) renameCancelled(members map[string]json.RawMessage) {
	if string(members["method"]) != `"notifications/cancelled"` {
		return
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(members["params"], &params) != nil || params["requestId"] == nil {
		return // the SDK reports it
	}
	c.mu.Lock()
	id, ok := c.open[string(params["requestId"])]
	c.mu.Unlock()
	params["requestId"] = json.RawMessage("0") // of no call
	if n, isNumber := id.Raw().(int64); ok && isNumber {
		params["requestId"] = strconv.AppendInt(nil, n, 10)
	}
	if renamed, err := json.Marshal(params); err == nil {
		members["params"] = renamed
	}
}

// refuse answers a message that is not passed on. id is its id, nil for none, b the batch that it is part of.
func (c *stdioConn) refuse(id json.RawMessage, b *batch, code int, message string) error {
	said, err := json.Marshal(jsonrpc.Error{Code: int64(code), Message: message})
	if err != nil {
		return err
	}
	raw := answerOf(id, "error", said)
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil {
		b.answers = append(b.answers, raw)
		return nil
	}
	return c.writeLine(raw)
}

// answerOf is an answer to the call of an id, nil for null, whose text stays as it is.
func answerOf(id json.RawMessage, member string, content json.RawMessage) json.RawMessage {
	if id == nil {
		id = json.RawMessage("null")
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"`+member+`":`), content, []byte("}"))
}

// settle notes that a part of a batch has its answer, nil for none, and sends all answers after the last one.
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
	raw := []byte{'['}
	for i, one := range b.answers {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = append(raw, one...)
	}
	return c.writeLine(append(raw, ']'))
}

func (c *stdioConn) writeLine(raw []byte) error {
	_, err := c.out.Write(append(raw, '\n'))
	return err
}

// inward matches messages of the SDK that speak of its own code.
var inward = regexp.MustCompile(`\bGo (value|struct)|\bmcp\.|jsonrpc2|unmarshal|reflect\.`)

// Write implements sdk.Connection.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, isAnswer := msg.(*jsonrpc.Response)
	to := call{}
	if isAnswer {
		to = c.calls[answer.ID]
		delete(c.calls, answer.ID)
		delete(c.open, string(to.id))
		msg = outward(answer, to.method)
	}
	raw, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if isAnswer && to.id != nil {
		if raw, err = answerTo(to.id, raw); err != nil {
			return err
		}
	}
	if to.batch != nil {
		return c.settled(to.batch, raw)
	}
	return c.writeLine(raw)
}

// answerTo is an answer with another id.
func answerTo(id json.RawMessage, raw []byte) (json.RawMessage, error) {
	var of struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(raw, &of); err != nil {
		return nil, err
	}
	if of.Error != nil {
		return answerOf(id, "error", of.Error), nil
	}
	return answerOf(id, "result", of.Result), nil
}

// outward returns an answer whose error says what is wrong with the call, instead of what went wrong in the SDK.
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
