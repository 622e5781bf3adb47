package server

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/acme/autocert"

	"j17/internal/base/keyfile"
)

// setupFile keeps the setup token until it is used, so that its URL holds over restarts.
const setupFile = "setup-token"

// firstOperator makes sure that there is an operator, or a way to create one.
func (s *Serve) firstOperator(ctx context.Context) error {
	// An operator from the settings needs no setup.
	registry := s.server.registry
	if s.options.OperatorEmail != "" {
		password, err := readPassword(s.options.OperatorPasswordFile)
		if err != nil {
			return err
		}
		return registry.Setup.Ensure(ctx, s.options.OperatorEmail, password)
	}

	// The token of an earlier start remains valid until there is an operator.
	files := s.server.files("")
	raw, err := files.Get(ctx, setupFile)
	if err != nil && !errors.Is(err, autocert.ErrCacheMiss) {
		return err
	}
	token := string(raw)
	works, err := registry.Setup.TokenWorks(ctx, token)
	if err != nil {
		return err
	}

	if !works {
		fresh, needed, err := registry.Setup.Token(ctx)
		if err != nil {
			return err
		}
		token = fresh
		if !needed {
			return files.Delete(ctx, setupFile)
		}
		if err := files.Put(ctx, setupFile, []byte(token)); err != nil {
			return err
		}
	}

	if s.options.SetupURL != nil {
		s.options.SetupURL(s.controlURL() + s.options.PublicPath + "/setup#token=" + token)
	}
	return nil
}

// identityFile holds the identity by which the data folders of workers are told apart.
const identityFile = "node"

// nodeIdentity returns the random identity of a worker's data folder, and makes it at the first start.
func nodeIdentity(dir string) (string, error) {
	file := filepath.Join(dir, identityFile)
	raw, err := os.ReadFile(file) //nolint:gosec // a fixed name in the data folder
	switch {
	case err == nil && len(raw) > 0:
		return string(raw), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	identity := rand.Text()
	return identity, keyfile.Write(file, []byte(identity))
}
