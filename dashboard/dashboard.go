// Package dashboard has the files of the dashboard, as part of the program. They are built from the sources in this
// folder by `make dashboard`.
package dashboard

import (
	"embed"
	"errors"
	"io/fs"
	"mime"
	"path"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// Files are those of one build. They are immutable.
type Files struct {
	page   string
	files  map[string]File
	styles []string
}

// File is one file beside the page.
type File struct {
	// Type is its media type.
	Type string
	Body []byte
	// Hashed tells that the name changes with the content.
	Hashed bool
}

// Open reads the files of this build.
func Open() (*Files, error) {
	f := &Files{files: map[string]File{}}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "dist/")
		if name == "index.html" {
			f.page = string(body)
			for rest := f.page; ; {
				var ok bool
				if _, rest, ok = strings.Cut(rest, `href="./`); !ok {
					return nil
				}
				if style, _, _ := strings.Cut(rest, `"`); path.Ext(style) == ".css" {
					f.styles = append(f.styles, style)
				}
			}
		}
		f.files[name] = File{Type: mediaType(name), Body: body, Hashed: strings.HasPrefix(name, "assets/")}
		return nil
	})
	if err == nil && f.page == "" {
		err = errors.New("the dashboard was not built: run 'make dashboard'")
	}
	return f, err
}

// mediaType is that of a file by its name, without looking at what the machine has set up.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".json":
		return "application/json"
	case ".txt":
		return "text/plain; charset=utf-8"
	default:
		if t := mime.TypeByExtension(path.Ext(name)); t != "" {
			return t
		}
		return "application/octet-stream"
	}
}

// File returns the file with a path relative to the page's.
func (f *Files) File(name string) (File, bool) {
	file, ok := f.files[name]
	return file, ok
}

// Styles are the names of the style sheets that the page loads.
func (f *Files) Styles() []string { return f.styles }

// Page returns the page for a path that a proxy puts in front of all others, "" for none, with a nonce on everything in
// it that a policy may ask one of. Neither may have characters that HTML needs for itself.
func (f *Files) Page(public, nonce string) string {
	return strings.NewReplacer(
		`data-base="/ui/"`, `data-base="`+public+`/ui/"`,
		`data-api="/api/"`, `data-api="`+public+`/api/"`,
		`="./`, `="`+public+`/ui/`,
		`<script `, `<script nonce="`+nonce+`" `,
		`<link rel="stylesheet" `, `<link rel="stylesheet" nonce="`+nonce+`" `,
	).Replace(f.page)
}
