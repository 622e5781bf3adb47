package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"path/filepath"

	"j17"
	"j17/internal/code/container"
	"j17/internal/code/sandbox"
	"j17/internal/code/wasm"
	"j17/internal/plane/deploy"
)

// openCode opens the runtimes of custom code. Compiled code and the files of containers are kept in the data folder;
// both may be removed while the server is stopped, and are made again. The user that containers run as cannot read the
// data folder of root, so their files are then kept in /var/cache.
func (s *Server) openCode(ctx context.Context) (deploy.Modules, deploy.Containers, error) {
	runtime, err := wasm.New(wasm.Options{
		CacheDir: filepath.Join(s.options.Dir, "cache", "wasm"), Logger: s.options.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	if s.options.Containers == container.Off {
		return modules{runtime}, nil, nil
	}
	dir, err := filepath.Abs(filepath.Join(s.options.Dir, "cache", "containers"))
	if err != nil {
		return nil, nil, err
	}
	s.runner, err = container.New(ctx, container.Options{
		Driver: s.options.Containers, Dir: dir, Spare: spareFolder(dir),
		BuildNetwork: s.options.ContainerBuildNetwork, Cgroup: s.options.ContainerCgroup,
		Images: s.options.ContainerImages, Clock: s.options.Clock, Logger: s.options.Logger,
		Processes: s.options.ContainerProcesses, Content: int64(s.options.ContainerDiskMiB) << 20,
	})
	if err != nil {
		return nil, nil, err
	}
	if used := s.runner.Dir(); used != dir {
		s.options.Logger.LogAttrs(ctx, slog.LevelInfo, "the data folder is closed to the user of containers; what they consist of is kept elsewhere",
			slog.String("folder", used))
	}
	return modules{runtime}, containers{s.runner}, nil
}

// spareFolder returns the folder for containers below /var/cache; each data folder has its own.
func spareFolder(dir string) string {
	const length = 6
	sum := sha256.Sum256([]byte(filepath.Dir(filepath.Dir(dir))))
	return filepath.Join("/var/cache/j17", hex.EncodeToString(sum[:length]), "containers")
}

// modules compiles WebAssembly for package deploy.
type modules struct{ runtime *wasm.Runtime }

// Compile compiles a module.
func (m modules) Compile(ctx context.Context, binary []byte) (deploy.Module, error) {
	compiled, err := m.runtime.Compile(ctx, binary)
	if err != nil {
		return nil, err
	}
	return module{compiled, context.WithoutCancel(ctx)}, nil
}

type module struct {
	*wasm.Module
	ctx context.Context
}

// Close frees the module.
func (m module) Close() error { return m.Module.Close(m.ctx) }

// containers runs containers for package deploy.
type containers struct{ runner *container.Runner }

// Image returns the function of an image.
func (c containers) Image(ctx context.Context, reference string, archive *deploy.Archive) (sandbox.Function, error) {
	if archive == nil {
		f, err := c.runner.Image(ctx, container.ImageSource{Reference: reference})
		return f, public(err)
	}
	return withArchive(ctx, archive, func(a container.Archive) (sandbox.Function, error) {
		return c.runner.Image(ctx, container.ImageSource{Archive: a})
	})
}

// Source returns the function of a file of source code.
func (c containers) Source(
	ctx context.Context, runtime, file string, archive *deploy.Archive,
) (sandbox.Function, error) {
	return withArchive(ctx, archive, func(a container.Archive) (sandbox.Function, error) {
		return c.runner.Source(ctx, runtime, a, file)
	})
}

// withArchive opens an archive for as long as make needs it.
func withArchive(
	ctx context.Context, archive *deploy.Archive, make func(container.Archive) (sandbox.Function, error),
) (sandbox.Function, error) {
	var a container.Archive
	if n, err := hex.Decode(a.SHA256[:], []byte(archive.SHA256)); err != nil || n != len(a.SHA256) {
		return nil, errors.Join(errors.New("the hash of a blob is malformed"), err)
	}
	content, err := archive.Open(ctx)
	if err != nil {
		return nil, err
	}
	a.Reader = content
	f, err := make(a)
	return f, errors.Join(public(err), content.Close())
}

// public turns a refusal that is meant for users into an error that they get to see.
func public(err error) error {
	if refusal, ok := errors.AsType[*container.Error](err); ok {
		return j17.Errorf(j17.CodeInvalidSpec, "%s", refusal.Message).Because(refusal.Err)
	}
	return err
}
