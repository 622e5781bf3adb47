package httpapi

import (
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/custody/loading"
	"j17/internal/plane/control"
)

// importHandlers store events from files.
type importHandlers struct {
	loader    *loading.Loader
	maxImport int64
}

// routes read events from files.
func (h *importHandlers) routes() []route {
	operate := need{control.RightOperate, instance}
	return []route{
		{0, post, "import", operator, operate, "events.import", h.importEvents, operation{
			id: "importEvents", about: "Import historical events", query: importing(), body: eventFiles(),
			gives: wire.Imported{},
		}},
		{0, post, "import_jsonl", operator, operate, "events.import", h.importEvents, operation{
			id: "importLines", about: "Import historical events", query: importing(), body: eventFiles(),
			gives: wire.Imported{},
		}},
		{0, post, "cold_start", operator, operate, "events.cold_start", h.coldStart, operation{
			id: "coldStart", about: "Import historical events into an environment without events",
			query: importing(), body: eventFiles(),
			gives: wire.Imported{},
		}},
		{0, post, "inject", operator, operate, "events.inject", h.injectEvents, operation{
			id: "injectEvents", about: "Write test data", body: eventFiles(), gives: wire.Injected{},
		}},
	}
}

// importEvents is POST import and POST import_jsonl: events that are history.
func (h *importHandlers) importEvents(c *call, w http.ResponseWriter) error {
	if c.api.lost.Load() {
		return errLost()
	}
	generation, err := c.unsaid()
	if err != nil {
		return err
	}
	file, err := h.eventFile(c, w)
	if err != nil {
		return err
	}
	defer file.f.Close() //nolint:errcheck // it was only read
	done, err := h.loader.Import(c.request.Context(), &loading.History{
		Tenant: c.tenant, ID: file.sum, Generation: generation, Open: file.open,
	})
	if done.Stored > 0 {
		c.record("events.import", "", eventsLoaded(done.Stored))
	}
	if err != nil {
		return withStored(inFile(err), done.Stored, "Send the same file again to go on: nothing is stored twice")
	}
	return c.answer(w, http.StatusOK, wire.Imported(done))
}

// unsaid reads the parameter generation of an import, 0 for none.
func (c *call) unsaid() (int, error) {
	switch given := c.query["generation"]; given {
	case "":
		return 0, nil
	case generationNewest:
		return command.Newest, nil
	default:
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 {
			return 0, j17.Errorf(j17.CodeInvalidParameter, "'generation' is the number of a generation, or newest").At("generation")
		}
		return n, nil
	}
}

// coldStart is POST cold_start: the same for an environment that has no events yet, as the body arrives.
func (h *importHandlers) coldStart(c *call, w http.ResponseWriter) error {
	if c.api.lost.Load() {
		return errLost()
	}
	if err := h.holdsEvents(c); err != nil {
		return err
	}
	generation, err := c.unsaid()
	if err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	body := &steadyBody{c: c, control: http.NewResponseController(w), until: clock.System{}.Now().Add(transferTime)}
	file := command.NewFileReader(body)
	file.Unsaid = generation
	done, err := h.loader.ColdStart(c.request.Context(), c.tenant, file)
	if err != nil {
		return inFile(err)
	}
	c.record("events.cold_start", "", eventsLoaded(done.Stored))
	return c.answer(w, http.StatusOK, wire.Imported(done))
}

// steadyBody is a body that has to keep arriving: more than a connection is held for it.
type steadyBody struct {
	c       *call
	control *http.ResponseController
	// until is when all of it has to be there.
	until time.Time
}

// steadyTime is how long nothing of it may arrive.
const steadyTime = time.Minute

// Read reads what arrives.
func (b *steadyBody) Read(p []byte) (int, error) {
	next := clock.System{}.Now().Add(steadyTime)
	if next.After(b.until) {
		next = b.until
	}
	_ = b.control.SetReadDeadline(next) // where there is no connection, as in tests, there are no limits either
	n, err := b.c.request.Body.Read(p)
	if _, said := errors.AsType[*j17.Error](err); err != nil && !said && !errors.Is(err, io.EOF) {
		err = j17.Errorf(j17.CodeInvalidRequest, "The request body could not be read to its end. Nothing was stored.").Because(err)
	}
	return n, err
}

// injectEvents is POST inject: test data.
func (h *importHandlers) injectEvents(c *call, w http.ResponseWriter) error {
	if c.api.lost.Load() {
		return errLost()
	}
	if c.env == j17.Prod {
		return j17.Errorf(j17.CodeForbidden, "Test data can be injected into staging and test only. Use an import for events that have happened.")
	}
	file, err := h.eventFile(c, w)
	if err != nil {
		return err
	}
	defer file.f.Close() //nolint:errcheck // it was only read
	done, err := h.loader.Inject(c.request.Context(), c.tenant, c.correlationID, file.open)
	if done.Stored > 0 {
		c.record("events.inject", "", eventsLoaded(done.Stored))
	}
	if err != nil {
		return withStored(inFile(err), done.Stored, "Send the others to go on")
	}
	return c.answer(w, http.StatusOK, wire.Injected(done))
}

// inFile returns an error about an event of a file. An undeclared type that the event names is a fault of the body; a
// 404 would look as if there were nothing at the path.
func inFile(err error) error {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok || e.EventIndex == nil || StatusOf(e.Code) != http.StatusNotFound {
		return err
	}
	with := *e
	with.Code = j17.CodeInvalidField
	return &with
}

// withStored adds to an error how many events were stored before it.
func withStored(err error, stored int, next string) error {
	if stored == 0 {
		return err
	}
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		e = j17.Errorf(j17.CodeInternal, "The server failed to store the whole file").Because(err)
	}
	with := *e
	before := strconv.Itoa(stored) + " events were"
	if stored == 1 {
		before = "1 event was"
	}
	with.Message = strings.TrimSuffix(e.Message, ".") + ". " + before + " stored before. " + next + "."
	return &with
}

// eventFile is a body that was put aside.
type eventFile struct {
	f   *os.File
	sum [sha256.Size]byte
}

// open begins to read the file.
func (f *eventFile) open() (*command.FileReader, error) {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return command.NewFileReader(f.f), nil
}

// holdsEvents refuses a body that says it is no file of events.
func (*importHandlers) holdsEvents(c *call) error {
	h := c.request.Header
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return j17.Errorf(j17.CodeInvalidContentType, "Request bodies must not be compressed; send them without Content-Encoding")
	}
	accepted := []string{"application/json", typeLines, "application/jsonl", "application/jsonlines"}
	if media, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || !slices.Contains(accepted, media) {
		return j17.Errorf(j17.CodeInvalidContentType, "The Content-Type must be application/x-ndjson for one event a line, or application/json for an array of events")
	}
	return nil
}

// eventFile reads the body, which may be large, to a file.
func (h *importHandlers) eventFile(c *call, w http.ResponseWriter) (*eventFile, error) {
	// The headers that describe the body.
	r, limit := c.request, h.maxImport
	if err := h.holdsEvents(c); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}

	// The file has no name, and the hash shows whether a repeated request is the same.
	c.allowTime(w, transferTime)
	f, err := scratchFile()
	if err != nil {
		return nil, err
	}
	file, sum := &eventFile{f: f}, sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), http.MaxBytesReader(w, r.Body, limit))
	sum.Sum(file.sum[:0])
	if err == nil && n > 0 {
		return file, nil
	}

	// What went wrong.
	_ = f.Close() // and with it the file is gone
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(limit)
	}
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil, noRoom(err)
	}
	if err != nil {
		return nil, j17.Errorf(j17.CodeInvalidRequest, "The request body could not be read to its end").Because(err)
	}
	return nil, j17.Errorf(j17.CodeInvalidJSON, "The request body is empty; it must have events")
}

// eventsLoaded are the details of a record that events were loaded.
func eventsLoaded(n int) map[string]string { return map[string]string{"events": strconv.Itoa(n)} }
