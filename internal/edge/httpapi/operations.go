package httpapi

import "j17/internal/edge/openapi"

// operation describes a route to readers of the API: what a request has and what the answer has.
type operation struct {
	id, about string
	// query are the parameters that a request may have: any other one is refused.
	query []parameter
	// body is the shape of the body of a request, nil for none; with optional it may be left out.
	body     any
	optional bool
	// gives is the shape of the answer, nil for {"ok":true}; made reports that the status is 201. Where both 200 and
	// 201 are possible, anew is what comes with 201 beside what comes with 200.
	gives any
	made  bool
	anew  any
	// tried is what comes with 200 in place of gives where the request asks what would happen, nil where it cannot.
	tried any
	// accepted is what comes with 202: beside what gives says, or alone where gives is nil.
	accepted any
	// tagged reports that the answer has an entity tag, and that a client that has the same content already gets a 304,
	// as with all reads with a key.
	tagged bool
	// places is the shape of the places that a type has to have for the row to be about it, "" where any type will do.
	places string
	// alike reports that nothing of the row depends on the aggregate type, so that it appears in a document once and
	// not for each type.
	alike bool
	// headers are those of the answer that only few answers have.
	headers map[string]openapi.Header
}

// Shapes that are no JSON objects of package wire.
type (
	// rows are a page of a list: its name and the shape of a row.
	rows struct {
		plural string
		row    any
	}
	// linesOf are objects of a shape, one a line.
	linesOf struct{ row any }
	// file is a body of a media type.
	file struct{ media string }
	// either is one of two shapes.
	either struct{ one, other any }
	// area is an area in the form of GeoJSON.
	area struct{}
	// form is what an HTML form sends: a name and a file.
	form struct{}
)

// eventFiles are whole files of events, as they are exported and imported.
func eventFiles() either { return either{file{typeLines}, file{typeJSON}} }

// The headers of few answers.

func signHeader() map[string]openapi.Header {
	return map[string]openapi.Header{HeaderSign: {About: "Which development server this is."}}
}

func nextHeader() map[string]openapi.Header {
	return map[string]openapi.Header{headerNext: {About: "Where the next page starts, for pages of lines."}}
}

func feedHeaders() map[string]openapi.Header {
	all := nextHeader()
	all[headerPosition] = openapi.Header{About: "The last position that was examined, for pages of lines."}
	return all
}

func exportHeader() map[string]openapi.Header {
	about := "Up to which position the export has all events: a trailer."
	return map[string]openapi.Header{headerPosition: {About: about}}
}

func specTag() map[string]openapi.Header {
	return map[string]openapi.Header{"ETag": {About: "The entity tag of the spec."}}
}

// contentHeaders are those of the content of a file.
func contentHeaders() map[string]openapi.Header {
	return map[string]openapi.Header{
		headerBlobVersion:     {About: "The version of the file.", Schema: map[string]any{"type": "integer"}},
		"Content-Disposition": {About: "The word attachment and the name of the file."},
	}
}
