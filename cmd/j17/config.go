package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"j17"
)

// config is the file that keeps contexts.
type config struct {
	Current  string                    `json:"current,omitempty"`
	Contexts map[string]*serverContext `json:"contexts"`
}

// serverContext is a server that a user works with, and their credentials for it.
type serverContext struct {
	// Server is the address under whose host name the instances have theirs; without Instance it may be that of an
	// instance.
	Server      string          `json:"server"`
	Instance    string          `json:"instance,omitempty"`
	Environment j17.Environment `json:"environment,omitempty"`
	CAFile      string          `json:"ca_file,omitempty"`
	// Keys are API keys of the instance by environment.
	Keys  map[j17.Environment]string `json:"keys,omitempty"`
	Login *login                     `json:"login,omitempty"`
}

// login is what is kept of a login.
type login struct {
	Email string `json:"email"`
	Token string `json:"token"`
	// ExpiresAt is in Unix seconds.
	ExpiresAt int64 `json:"expires_at"`
}

func (l *login) expires() time.Time { return time.Unix(l.ExpiresAt, 0).UTC() }

// maxConfig bounds the size of the configuration file.
const maxConfig = 4 << 20

// configFile is the name of the configuration file.
func (e *env) configFile() (string, error) {
	if dir := e.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "j17", "config.json"), nil
	}
	home := cmp.Or(e.getenv("HOME"), e.getenv("USERPROFILE"))
	if home == "" {
		return "", errors.New("there is no place for contexts: set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(home, ".config", "j17", "config.json"), nil
}

// config reads the configuration file; one that is not there is empty.
func (e *env) config() (*config, error) {
	// Where it is, and whether others can read it.
	c := &config{Contexts: map[string]*serverContext{}}
	name, err := e.configFile()
	if err != nil {
		return c, nil //nolint:nilerr // where nothing can be kept, nothing is
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, unreadable(name, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		e.note("%s holds credentials and can be read by others: run chmod 600 on it.\n", fileName(name))
	}

	// Its content. An unknown name may be a misspelling of a known one.
	raw, err := e.readAll(name, maxConfig, "It should hold contexts and nothing else.")
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		return nil, fmt.Errorf("the configuration file %s is damaged: correct or remove it: %w", fileName(name), err)
	}

	// Initialise its parts, so that later code need not check.
	if c.Contexts == nil {
		c.Contexts = map[string]*serverContext{}
	}
	for key, ctx := range c.Contexts {
		if ctx == nil {
			return nil, fmt.Errorf("the configuration file %s is damaged: the context %q is empty. Correct or remove it", fileName(name), key)
		}
	}
	return c, nil
}

// saveConfig replaces the configuration file, or what a symbolic link in its place leads to, in one step. Only its
// owner may read it.
func (e *env) saveConfig(c *config) (err error) {
	name, err := e.configFile()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the configuration file %s cannot be written: %w", fileName(name), err)
		}
	}()
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	target, err := linked(name)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".config-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(raw, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// context returns a context by name.
func (c *config) context(name string) (*serverContext, error) {
	if ctx, ok := c.Contexts[name]; ok {
		return ctx, nil
	}
	return nil, &j17.Error{Code: j17.CodeNotFound, Message: fmt.Sprintf("there is no context %q. 'j17 context list' shows those there are; 'j17 login' and 'j17 context set' make them", name)}
}
