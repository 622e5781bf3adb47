package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"j17"
)

// Projected is the reply to a read of a projection.
type Projected struct {
	Data json.RawMessage
	// CachedAt is when the value was computed, in Unix seconds.
	CachedAt int64
	// Metadata is the whole of the reply's metadata.
	Metadata json.RawMessage
}

// Projection reads what a projection yields for an aggregate, or in the array form for parameters; id is "" where there
// is none.
func (c *Client) Projection(ctx context.Context, name, id string, o ProjectionOptions) (Projected, error) {
	if err := kept(j17.CodeInvalidIdentifier, "aggregate", id); err != nil {
		return Projected{}, err
	}
	q := url.Values{}
	for param, v := range o.Params {
		q.Set(param, v)
	}
	if o.At != "" {
		q.Set("at", o.At)
	}
	if o.Synchronous {
		q.Set("synchronous", "true")
	}
	path := []string{"_projections", name}
	if id != "" {
		path = append(path, id)
	}
	var b struct {
		Data     json.RawMessage   `json:"data"`
		Rows     []json.RawMessage `json:"rows"`
		CachedAt int64             `json:"cached_at"`
		Metadata json.RawMessage   `json:"metadata"`
	}
	complete := func() error {
		switch {
		case b.Data != nil:
			return nil
		case b.Rows != nil:
			return &Error{Problem: j17.Errorf(j17.CodeInvalidParameter, "The projection '%s' has a value for each of many aggregates. Say of which one by its id, or ask for its rows.", j17.Printable(name)), Status: http.StatusOK}
		}
		return errors.New("the reply has no data")
	}
	if err := c.get(ctx, path, q, &b, complete); err != nil {
		return Projected{}, err
	}
	return Projected{b.Data, b.CachedAt, b.Metadata}, nil
}

// RowPage is a page of rows, each as the server has it. Next is the start of the next page, "" on the last one;
// Position is the one of the feed that all rows are as of.
type RowPage struct {
	Rows     []json.RawMessage
	Next     string
	Position string
}

// ProjectionRows reads a page of the rows of a projection; q has filters, order, count and start.
func (c *Client) ProjectionRows(ctx context.Context, name string, q url.Values) (RowPage, error) {
	return c.rowPage(ctx, []string{"_projections", name}, q)
}

// Places reads a page of what is where a question asks for, which is nearby, within or containing; q has where that is,
// count and start.
func (c *Client) Places(ctx context.Context, aggregateType, question string, q url.Values) (RowPage, error) {
	if err := keptType(aggregateType); err != nil {
		return RowPage{}, err
	}
	return c.rowPage(ctx, []string{aggregateType, question}, q)
}

func (c *Client) rowPage(ctx context.Context, path []string, q url.Values) (RowPage, error) {
	var b struct {
		Rows     []json.RawMessage `json:"rows"`
		Next     *string           `json:"next"`
		Metadata struct {
			Position string `json:"position"`
		} `json:"metadata"`
	}
	complete := func() error {
		if b.Rows == nil {
			return errors.New("the reply has no rows")
		}
		return nil
	}
	if err := c.get(ctx, path, q, &b, complete); err != nil {
		return RowPage{}, err
	}
	p := RowPage{Rows: b.Rows, Position: b.Metadata.Position}
	if b.Next != nil {
		p.Next = *b.Next
	}
	return p, nil
}

// CountRows returns how many rows of a projection pass filters.
func (c *Client) CountRows(ctx context.Context, name string, q url.Values) (uint64, error) {
	var b struct {
		Count *uint64 `json:"count"`
	}
	complete := func() error {
		if b.Count == nil {
			return errors.New("the reply has no count")
		}
		return nil
	}
	if err := c.get(ctx, []string{"_projections", name, "_count"}, q, &b, complete); err != nil {
		return 0, err
	}
	return *b.Count, nil
}
