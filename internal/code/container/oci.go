package container

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"j17/internal/code/sandbox"
)

// ImageSource is a binary image: the archive of one, or the name of one that the container engine of this machine has.
type ImageSource struct {
	// Reference names an image of docker or podman. It is never fetched.
	Reference string
	// Archive is an image as a tar file, in the OCI layout or as docker save writes it. It counts where Reference is
	// "".
	Archive Archive
}

// The processes of an image with this label and value answer many calls, one a line. Those of others answer one.
const (
	callsLabel = "j17.calls"
	callsMany  = "many"
)

// imageConfig is what an image says about how to run it.
type imageConfig struct {
	Entrypoint []string          `json:"Entrypoint"`
	Cmd        []string          `json:"Cmd"`
	Env        []string          `json:"Env"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels"`
}

// Image returns the function that a binary image is. The error is an *Error where the image or the options are at
// fault.
func (r *Runner) Image(ctx context.Context, source ImageSource) (sandbox.Function, error) {
	if err := r.off(); err != nil {
		return nil, err
	}
	j := &job{memory: r.opts.Memory, tasks: r.opts.Tasks, cpus: r.opts.CPUs, file: scratch, scratch: scratch}

	// An engine has images of its own.
	if e, ok := r.driver.(*engine); ok {
		if source.Reference == "" {
			return nil, refuse("The container driver %s runs images by their name only. Load the archive into the engine and name the image in the spec, or let the operator choose bubblewrap or runc.", r.opts.Driver)
		}
		id, many, err := e.inspect(ctx, source.Reference)
		if err != nil {
			return nil, err
		}
		j.reference, j.env = id, []string{"HOME=/tmp", "TMPDIR=/tmp"}
		f := r.function(j, "image", id)
		f.once = !many
		return f, nil
	}

	// All others unpack an archive.
	if source.Reference != "" {
		return nil, refuse("The container driver %s has no images of its own, so %q means nothing to it. Upload the image's archive as a blob and name it as in \"blob:order-processor:v2\", or let the operator choose docker or podman.", r.opts.Driver, source.Reference)
	}
	key := hex.EncodeToString(source.Archive.SHA256[:])
	dir, release, err := r.content(
		ctx, "images", key,
		func(ctx context.Context, dir string) error { return r.unpackImage(ctx, source.Archive, dir) },
	)
	if err != nil {
		return nil, err
	}

	// What the image says about how to run it.
	config, err := readConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		release()
		return nil, err
	}
	j.root = filepath.Join(dir, "root")
	j.args = append(config.Entrypoint, config.Cmd...)
	j.env = override(environment(), config.Env...)
	j.dir = path.Join("/", config.WorkingDir)

	f := r.function(j, "image", key)
	f.once = config.Labels[callsLabel] != callsMany
	f.holds(release)
	return f, nil
}

func readConfig(path string) (*imageConfig, error) {
	text, err := os.ReadFile(path) //nolint:gosec // a file of ours
	if err != nil {
		return nil, err
	}
	config := &imageConfig{}
	return config, json.Unmarshal(text, config)
}

// parts are the files of an image's archive, by their names within it.
type parts map[string]string

func (p parts) json(name string, into any) error {
	const largest = 4 << 20
	file, err := p.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, largest))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &Error{Message: fmt.Sprintf("The archive is no image: its file %q cannot be understood (%v).", name, err), Err: err}
	}
	return nil
}

func (p parts) open(name string) (*os.File, error) {
	file, ok := p[path.Clean(name)]
	if !ok {
		return nil, refuse("The archive is no whole image: it lacks the file %q.", name)
	}
	return os.Open(file) //nolint:gosec // a file of ours
}

// blob returns the name of the part with a digest, once the digest was verified.
func (p parts) blob(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, "sha256:")
	if !ok {
		return "", refuse("The image refers to the digest %q. Only sha256 is known.", digest)
	}
	name := "blobs/sha256/" + sum
	file, err := p.open(name)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", errors.Join(err, file.Close())
	}
	if hex.EncodeToString(hash.Sum(nil)) != sum {
		_ = file.Close()
		return "", refuse("The image is damaged: the content of %q has another digest.", name)
	}
	return name, file.Close()
}

// unpackImage makes dir/root and dir/config.json from an image's archive.
func (r *Runner) unpackImage(ctx context.Context, archive Archive, dir string) error {
	scratch, done, err := r.stage()
	if err != nil {
		return err
	}
	defer done()
	file, err := archive.save(scratch, r.limits.packed)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()

	// The parts, among them the configuration and the layers.
	all, err := splitImage(ctx, file, scratch, r.limits)
	if err != nil {
		return err
	}
	config, layers, err := all.contents()
	if err != nil {
		return err
	}
	if len(config.Entrypoint)+len(config.Cmd) == 0 {
		return refuse("The image says neither by Entrypoint nor by Cmd what to run.")
	}
	for _, v := range config.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return refuse("The image sets the variable %q. Write it as name=value.", v)
		}
	}

	// The layers become one folder.
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil { //nolint:gosec // the sandbox's user must read it
		return err
	}
	if err := all.unpackLayers(ctx, root, layers, r.limits); err != nil {
		return err
	}

	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// splitImage puts the files of an archive side by side in a folder, under names of its own choice.
func splitImage(ctx context.Context, file io.ReadSeeker, dir string, limits unpackLimits) (parts, error) {
	content, err := decompress(file)
	if err != nil {
		return nil, err
	}
	all, links := parts{}, map[string]string{}
	archive := tar.NewReader(io.LimitReader(content, 2*limits.packed+1<<20)) // what is skipped counts too
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &Error{Message: "The archive is no image: it is no tar file, or damaged (" + err.Error() + ").", Err: err}
		}
		const mostParts = 4096
		if n > mostParts {
			return nil, refuse("The archive is no image: it has too many entries.")
		}

		// Only files become parts.
		name := path.Clean(header.Name)
		if header.Typeflag == tar.TypeSymlink { // docker save writes them for layers that are the same
			//nolint:gosec // a key of a map, never a path of this machine
			links[name] = path.Join(path.Dir(name), header.Linkname)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}

		// The name of a part is ours, whatever the archive says.
		if limits.packed -= header.Size; limits.packed < 0 {
			return nil, refuse("The archive cannot be unpacked: its files are too large in total.")
		}
		target := filepath.Join(dir, "part-"+strconv.Itoa(n))
		out, err := os.Create(target) //nolint:gosec // in a scratch folder of ours
		if err != nil {
			return nil, err
		}
		_, err = io.CopyN(out, archive, header.Size)
		if err = errors.Join(err, out.Close()); err != nil {
			return nil, &Error{Message: "The archive is no image: it is damaged (" + reason(err) + ").", Err: err}
		}
		all[name] = target
	}

	// Links stand for the parts that they lead to.
	for name, target := range links {
		if at, ok := all[target]; ok {
			all[name] = at
		}
	}
	return all, nil
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Platform  *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// contents returns the configuration of the image and the names of its layers, lowest first.
func (p parts) contents() (imageConfig, []string, error) {
	var outer struct {
		OS           string      `json:"os"`
		Architecture string      `json:"architecture"`
		Config       imageConfig `json:"config"`
	}
	var configName string
	var layers []string
	switch {
	// The OCI layout.
	case p["index.json"] != "":
		manifest, err := p.manifest()
		if err != nil {
			return imageConfig{}, nil, err
		}
		if configName, err = p.blob(manifest.Config.Digest); err != nil {
			return imageConfig{}, nil, err
		}
		for _, layer := range manifest.Layers {
			name, err := p.blob(layer.Digest)
			if err != nil {
				return imageConfig{}, nil, err
			}
			layers = append(layers, name)
		}

	// What docker save writes.
	case p["manifest.json"] != "":
		var images []struct{ Config string }
		var lists []struct{ Layers []string }
		if err := errors.Join(p.json("manifest.json", &images), p.json("manifest.json", &lists)); err != nil {
			return imageConfig{}, nil, err
		}
		if len(images) != 1 {
			return imageConfig{}, nil, refuse("The archive has %d images. Save one at a time.", len(images))
		}
		configName, layers = images[0].Config, lists[0].Layers
	default:
		return imageConfig{}, nil, refuse("The archive is no image: it has neither index.json (OCI layout) nor manifest.json (docker save).")
	}

	// Both end at the configuration.
	if err := p.json(configName, &outer); err != nil {
		return imageConfig{}, nil, err
	}
	if outer.OS != "linux" || outer.Architecture != runtime.GOARCH {
		return imageConfig{}, nil, refuse("The image is for %s/%s, and this server runs on linux/%s. Build it for that platform.", outer.OS, outer.Architecture, runtime.GOARCH)
	}
	return outer.Config, layers, nil
}

type manifest struct {
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

// manifest follows index.json to the manifest for this machine.
func (p parts) manifest() (manifest, error) {
	var at manifest
	if err := p.json("index.json", &at); err != nil {
		return manifest{}, err
	}

	// An index may lead to another one.
	const deepest = 4
	for range deepest {
		if at.Config.Digest != "" {
			return at, nil
		}

		var next string
		for _, d := range at.Manifests {
			fits := d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
			switch {
			case !fits:
			case next == "":
				next = d.Digest
			case d.Platform == nil:
				return manifest{}, refuse("The archive has several images. Save one at a time.")
			}
		}
		if next == "" {
			return manifest{}, refuse("The archive has no image for linux/%s. Build it for that platform.", runtime.GOARCH)
		}

		name, err := p.blob(next)
		if err != nil {
			return manifest{}, err
		}
		at = manifest{}
		if err := p.json(name, &at); err != nil {
			return manifest{}, err
		}
	}
	return manifest{}, refuse("The archive is no image: its indexes are nested too deeply.")
}

// unpackLayers lays the layers of an image over each other in a folder.
func (p parts) unpackLayers(ctx context.Context, dir string, layers []string, limits unpackLimits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	t := &tree{root: root, limits: limits, image: true}
	for _, layer := range layers {
		if err := p.unpackLayer(ctx, t, layer); err != nil {
			return err
		}
	}
	// The sandbox mounts file systems of its own on these.
	for _, name := range []string{"proc", "dev", "tmp"} {
		if err := t.folder(name); err != nil {
			return err
		}
	}
	if err := t.open(); err != nil {
		return err
	}
	return t.root.Chmod("tmp", 0o777|fs.ModeSticky) // runc gives what it mounts the mode of what it mounts on
}

func (p parts) unpackLayer(ctx context.Context, t *tree, layer string) error {
	file, err := p.open(layer)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content, err := decompress(file)
	if err != nil {
		return err
	}
	return t.untar(ctx, content)
}
