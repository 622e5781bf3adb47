package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"j17"
	"j17/docs"
	"j17/internal/core/engine"
	"j17/internal/derived/projection"
	"j17/internal/edge/openapi"
	"j17/internal/plane/control"
)

// documentHandlers describe the API.
type documentHandlers struct {
	engine      *engine.Engine
	projections *projection.Service
	documents   *documents
}

// routes describe the API.
func (h *documentHandlers) routes() []route {
	return []route{
		{controlSite, get, openAPIPath, open, need{}, "", h.openAPI(ControlDocument), operation{
			id: "getOpenAPI", about: "Get this document", gives: file{typeJSON}, tagged: true,
		}},
		{controlSite, get, corePagesPath, open, need{}, "", h.corePages, operation{
			id: "getCorePages", about: "Get the documentation that an assistant needs to write a spec and call its API",
			gives: file{typeText}, tagged: true,
		}},
		{
			dataSite, get, openAPIPath, reader,
			need{control.RightView, instance},
			"", h.openAPI(InstanceDocument),
			operation{
				id: "getOpenAPI", about: "Get this document", query: inParts(), gives: file{typeJSON}, tagged: true,
			},
		},
		{internalSite, get, openAPIPath, free, need{}, "", h.openAPI(InternalDocument), operation{
			id: "getOpenAPI", about: "Get this document", gives: file{typeJSON}, tagged: true,
		}},
	}
}

// documents keeps documents that were made: that of an environment as long as its spec and its projections stay the
// same.
type documents struct {
	mu   sync.Mutex
	made map[string]tagged
	size int
	// making has a channel for each document that is being made, which is closed when that has ended.
	making map[string]chan struct{}
}

// tagged is an answer with its entity tag.
type tagged struct {
	body []byte
	tag  string
}

// maxDocuments bounds the memory for documents, in bytes.
const maxDocuments = 32 << 20

// of returns a document that is kept, or makes it. Requests for a document that is being made wait for it, and make it
// themselves if that fails.
func (d *documents) of(ctx context.Context, key string, build func() ([]byte, error)) (tagged, error) {
	// Find it, or become the one that makes it.
	for {
		d.mu.Lock()
		kept, ok := d.made[key]
		ended := d.making[key]
		if ok || ended == nil {
			if !ok {
				ended = make(chan struct{})
				if d.making == nil {
					d.making = map[string]chan struct{}{}
				}
				d.making[key] = ended
				defer d.end(key, ended)
			}
			d.mu.Unlock()
			if ok {
				return kept, nil
			}
			break
		}
		d.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return tagged{}, ctx.Err()
		}
	}

	// Make it, and keep it.
	raw, err := build()
	if err != nil {
		return tagged{}, err
	}
	doc := tagged{raw, digestTag(raw)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.size += len(raw); d.made == nil || d.size > maxDocuments {
		d.made, d.size = map[string]tagged{}, len(raw)
	}
	d.made[key] = doc
	return doc, nil
}

// end lets the requests go on that wait for a document.
func (d *documents) end(key string, ended chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.making, key)
	close(ended)
}

// openAPI is GET /_openapi.json: the document of this host, or of its administration. It is made once for each deployed
// spec with the projections beside it, on a turn on a processor; the server's URL in it is the one that the request was
// sent to.
func (h *documentHandlers) openAPI(d Document) handler {
	return func(c *call, w http.ResponseWriter) error {
		d := d
		if c.query["part"] == partAdmin {
			d = AdminDocument
		}
		of := projection.Declared{Key: strconv.Itoa(int(d))}
		if d == InstanceDocument {
			if h.engine.Spec(c.tenant) == nil {
				return j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s.", c.env.LongName())
			}
			var err error
			if of, err = h.projections.Declared(c.request.Context(), c.tenant); err != nil {
				return err
			}
		}
		doc, err := h.documents.of(c.request.Context(), of.Key, func() ([]byte, error) {
			if err := c.slot.Take(c.request.Context()); err != nil {
				return nil, err
			}
			defer c.slot.Give()
			return c.api.describe(d, &of)
		})
		if err != nil {
			return err
		}
		server := c.origin()
		if d == InternalDocument && c.request.TLS == nil {
			server = "http://" + c.request.Host
		}
		end := openapi.At(server)
		return c.pageOf(w, digestTag(append([]byte(doc.tag), end...)), doc.body, end)
	}
}

// corePagesPath is where the documentation for assistants is, on the control host.
const corePagesPath = "/llms-core.txt"

func (h *documentHandlers) corePages(c *call, w http.ResponseWriter) error {
	doc, err := h.documents.of(c.request.Context(), corePagesPath, func() ([]byte, error) {
		library, err := docs.Load()
		if err != nil {
			return nil, err
		}
		return []byte(library.LLMsCore()), nil
	})
	if err != nil {
		return err
	}
	return c.textOf(w, typeText, doc.tag, doc.body)
}

// partAdmin asks for the document of the administration of an environment.
const partAdmin = "admin"

// inParts are the parameters of the document of an environment.
func inParts() []parameter {
	return []parameter{{name: "part", kind: choice, choices: []string{partAdmin}, about: "admin for the routes under /_admin, which the document leaves out otherwise."}}
}
