package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/derived/projection"
)

// projection is GET /_projections/{name}/{id}, and without an id where the projection has none.
func (c *call) projection(w http.ResponseWriter) error {
	// What is wanted.
	r := c.request
	ask := &projection.Ask{Name: r.PathValue("name"), ID: r.PathValue("id"), Params: c.further, Takes: namesOf(viewed()), Synchronous: c.isSet("synchronous"), Until: c.moment("at")}
	v, err := c.project(ask)
	if err != nil {
		return c.unlessRows(err)
	}

	// The value, with what stands around it.
	if known, err := c.known(w, v.Tag); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", typeJSON)
	const head, most = `{"ok":true,"data":`, 256 // of what stands around it
	if len(v.Data) <= smallAnswer {
		b := append(make([]byte, 0, len(v.Data)+most), head...)
		c.write(w, http.StatusOK, appendProjected(append(b, v.Data...), v))
	} else {
		c.write(w, http.StatusOK, []byte(head), v.Data, appendProjected(make([]byte, 0, most), v))
	}
	return nil
}

// unlessRows adds to the refusal of an id, which is the last step of a path, that there is a path of the rows which is almost the same.
func (c *call) unlessRows(err error) error {
	name, id := c.request.PathValue("name"), c.request.PathValue("id")
	refused, ok := errors.AsType[*j17.Error](err)
	if !ok || refused.Code != j17.CodeInvalidIdentifier || id != "stream" && id != "count" {
		return err
	}
	if named, unknown := c.api.Projections.IsNamed(c.request.Context(), c.tenant, name); unknown != nil || !named {
		return err
	}
	said := *refused
	said.Message = strings.TrimSuffix(said.Message, ".") + ". Did you mean '" + viewPrefix + name + "/_" + id + "'?"
	return &said
}

// project reads a value for which there is room among the replies.
func (c *call) project(ask *projection.Ask) (*projection.Reply, error) {
	for waited := false; ; waited = true {
		v, err := c.api.Projections.Read(c.request.Context(), c.tenant, ask)
		c.slot.Give() // what follows takes as long as the client likes
		if err != nil {
			return nil, err
		}
		size := int64(len(v.Data))
		if waited || size <= unaccounted || c.tryTake(c.api.room.replies, size) {
			return v, nil
		}
		v = nil // or it would be in memory while it waits
		if err := c.take(c.api.room.replies, size, "such a reply"); err != nil {
			return v, err
		}
	}
}

// appendProjected appends what stands behind the data of a value.
func appendProjected(b []byte, v *projection.Reply) []byte {
	b = append(b, `,"cached_at":`...)
	return appendMetadata(strconv.AppendInt(b, v.Computed, 10), v)
}

// appendMetadata appends what tells what is projected, and the end of the answer.
func appendMetadata(b []byte, v *projection.Reply) []byte {
	b = append(b, `,"metadata":{`...)
	if v.Key.ID != "" {
		b = append(b, `"id":`...)
		b = value.AppendString(b, v.Key.ID)
		b = appendNames(b, v.Names)
	}
	if !v.Past {
		if v.Key.ID != "" {
			b = append(b, ',')
		}
		b = append(b, `"position":"`...)
		b = append(v.Position.AppendPosition(b), '"')
	}
	return append(b, `}}`...)
}
