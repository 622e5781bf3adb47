package client

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strings"
)

// ForOperator returns a client with the credential of c that reads an environment by the routes of operators: its
// aggregates, its feed and what proves its log. at is where the administration of the environment is, in segments.
func (c *Client) ForOperator(at []string) *Client {
	return &Client{o: c.o, first: c.first, administration: at}
}

// route returns where a read is: at a path of API keys, or for an operator at the same one below the administration of
// the environment, where aggregates stand below "aggregates" and no name begins with an underscore.
func (c *Client) route(path ...string) []string {
	if c.administration == nil {
		return path
	}
	below := slices.Clone(c.administration)
	if own, ok := strings.CutPrefix(path[0], "_"); ok {
		return append(append(below, own), path[1:]...)
	}
	return append(append(below, "aggregates"), path...)
}

// Audit reads what proves the log of the environment: a route below /_audit, in segments.
func (c *Client) Audit(ctx context.Context, path []string, query url.Values, into any) error {
	return c.Call(ctx, Request{Path: c.route(append([]string{"_audit"}, path...)...), Query: query}, into)
}

// Checkpoint reads the signed head of the log of the environment, a signed note.
func (c *Client) Checkpoint(ctx context.Context) (string, error) {
	body, _, err := c.Download(ctx, c.route("_audit", "checkpoint"), nil)
	if err != nil {
		return "", err
	}
	defer body.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(io.LimitReader(body, maxNote))
	return string(raw), err
}

// maxNote bounds a signed note.
const maxNote = 1 << 20
