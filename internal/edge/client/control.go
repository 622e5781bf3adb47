package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
)

// Request is one for the routes of operators.
type Request struct {
	// Method is that of HTTP; "" means GET.
	Method string
	// Path is the path in segments, each as it is: they are escaped here.
	Path  []string
	Query url.Values
	// Body is sent as JSON, bytes as they are, a *Content as what it says it is; nil sends none.
	Body any
	// Repeatable reports that a request which changes something may be sent again when its outcome is not known.
	Repeatable bool
	// NothingIfBusy reports that a request which the server answers with CodeBusy has had no effect, so that it may be
	// sent again.
	NothingIfBusy bool
	// IfMatch is the entity tag that must be current, "" where that does not matter.
	IfMatch string
}

// Content is a body that is not kept in memory. It is read again where a request is sent again.
type Content struct {
	From io.ReaderAt
	Size int64
	// Type is its media type.
	Type string
	// Sent, if not nil, is called with how many bytes were read for the present attempt.
	Sent func(bytes int64)
}

// reader reads the content from its start.
func (b *Content) reader() io.Reader { return &contentReader{b, 0} }

// contentReader is at a place of a content.
type contentReader struct {
	*Content
	at int64
}

// Read implements io.Reader.
func (r *contentReader) Read(p []byte) (int, error) {
	if r.at == r.Size {
		return 0, io.EOF
	}
	n, err := r.From.ReadAt(p[:min(int64(len(p)), r.Size-r.at)], r.at)
	r.at += int64(n)
	if r.Sent != nil {
		r.Sent(r.at)
	}
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // it was longer
	}
	return 0, err
}

// Call sends a request and decodes the reply, a JSON object, into a value. Reads are repeated like those of Client.
func (c *Client) Call(ctx context.Context, r Request, into any) error {
	wire := request{
		method: r.Method, path: r.Path, query: r.Query, ifMatch: r.IfMatch, repeatable: r.Repeatable,
		nothingIfBusy: r.NothingIfBusy,
	}
	if wire.method == "" {
		wire.method = http.MethodGet
	}
	switch body := r.Body.(type) {
	case nil:
	case []byte:
		wire.body = body
	case *Content:
		wire.content = body
	default:
		var err error
		if wire.body, err = encode(body); err != nil {
			return err
		}
	}
	got, err := c.do(ctx, wire)
	if err != nil {
		return err
	}
	var ours struct {
		OK bool `json:"ok"`
	}
	if err := json.Unmarshal(got.body, &ours); err != nil || !ours.OK {
		return notOurs(got, err)
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		return notOurs(got, err)
	}
	return nil
}

// Rows goes through the rows of a list, page by page: at most count of them, 0 for no limit. It ends after an error.
func (c *Client) Rows(
	ctx context.Context, path []string, query url.Values, plural string, count int,
) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		q := url.Values{}
		maps.Copy(q, query)
		for left := count; count == 0 || left > 0; {
			// A page.
			size := maxPage
			if count > 0 {
				size = min(left, maxPage)
			}
			q.Set("limit", strconv.Itoa(size))
			var page map[string]json.RawMessage
			var rows []json.RawMessage
			err := c.get(ctx, path, q, &page, func() error {
				if err := json.Unmarshal(page[plural], &rows); err != nil || rows == nil {
					return needs(false, plural)
				}
				return nil
			})
			if err != nil {
				yield(nil, err)
				return
			}

			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}

			// Where the next one starts.
			left -= len(rows)
			more, err := follow(q, page["next"])
			if err != nil {
				yield(nil, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// follow turns a query into that for the next page: a number counts rows, a text is a cursor.
func follow(q url.Values, next json.RawMessage) (bool, error) {
	var at any
	if len(next) > 0 {
		if err := json.Unmarshal(next, &at); err != nil {
			return false, err
		}
	}
	name, to := "start", ""
	switch at := at.(type) {
	case nil:
		return false, nil
	case string:
		to = at
	case float64:
		name, to = "offset", strconv.FormatFloat(at, 'f', 0, 64)
	}
	if to == "" || q.Get(name) == to {
		return false, errors.New("the server sent a list whose pages do not end")
	}
	q.Set(name, to)
	return true, nil
}

// Download returns a reply as it arrives, with its headers. The caller closes the body.
func (c *Client) Download(ctx context.Context, path []string, query url.Values) (io.ReadCloser, http.Header, error) {
	resp, err := c.open(ctx, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, resp.Header, nil
	}
	got, err := c.whole(ctx, resp)
	if err == nil {
		err = c.failure(got)
	}
	return nil, nil, err
}

// Upload sends a form of a name and a file, which is read once, and decodes the reply into a value.
func (c *Client) Upload(ctx context.Context, path []string, name string, file io.Reader, into any) error {
	in, out := io.Pipe()
	form := multipart.NewWriter(out)
	written := make(chan error, 1)

	// The form is written while it is sent.
	go func() {
		err := form.WriteField("name", name)
		var part io.Writer
		if err == nil {
			part, err = form.CreateFormFile("file", "file")
		}
		if err == nil {
			_, err = io.Copy(part, file)
		}
		if err == nil {
			err = form.Close()
		}
		_ = out.CloseWithError(err) // never fails
		written <- err
	}()

	to := cmp.Or(c.node.Load(), c.first)
	req, err := c.request(ctx, to, request{method: http.MethodPost, path: path}, in)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := to.http.Do(req)
	_ = in.CloseWithError(errNotRead) // the writer must not wait for what nobody reads
	if fileErr := <-written; fileErr != nil && !errors.Is(fileErr, errNotRead) && err != nil {
		return fmt.Errorf("the file could not be sent whole: %w", fileErr)
	}
	if err != nil {
		return c.unreachable(ctx, to.base, err)
	}

	// What the server says of it.
	got, err := c.whole(ctx, resp)
	if err != nil {
		return err
	}
	if got.status < 200 || got.status > 299 {
		return c.failure(got)
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		return notOurs(got, err)
	}
	return nil
}

var errNotRead = errors.New("the server did not read all of it")
