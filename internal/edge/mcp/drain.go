package mcp

import (
	"context"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// draining is a transport whose connection reports the end of its input only when all earlier calls are answered. The
// SDK would end the session at once and, for example, leave a write without its receipt.
type draining struct{ sdk.Transport }

// Connect implements sdk.Transport.
func (d draining) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := d.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &drainingConn{
		Connection: conn, pending: map[jsonrpc.ID]struct{}{}, answered: make(chan struct{}, 1),
		closed: make(chan struct{}),
	}, nil
}

type drainingConn struct {
	sdk.Connection

	mu sync.Mutex
	// pending holds the calls that were read and not answered.
	pending map[jsonrpc.ID]struct{}
	// answered has an element after each answer, closed ends with the connection.
	answered  chan struct{}
	closed    chan struct{}
	closeOnce sync.Once
}

// Read implements sdk.Connection.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		c.drain(ctx)
		return nil, err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && endsSoon(req.Method) {
		c.mu.Lock()
		c.pending[req.ID] = struct{}{}
		c.mu.Unlock()
	}
	return msg, nil
}

// endsSoon reports whether calls of a method wait only for a bounded piece of work.
func endsSoon(method string) bool {
	return method == "initialize" || method == "ping" || strings.HasPrefix(method, "tools/") ||
		strings.HasPrefix(method, "resources/")
}

// drain waits until all calls are answered or the connection is closed.
func (c *drainingConn) drain(ctx context.Context) {
	for {
		c.mu.Lock()
		left := len(c.pending)
		c.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-c.answered:
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Write implements sdk.Connection.
func (c *drainingConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if answer, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.pending, answer.ID)
		c.mu.Unlock()
		select {
		case c.answered <- struct{}{}:
		default: // drain has not seen the previous answer yet
		}
	}
	return err
}

// Close implements sdk.Connection.
func (c *drainingConn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
