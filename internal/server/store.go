package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/core/part"
	"j17/internal/storage/pebble"
	"j17/internal/storage/postgres"
	"j17/internal/storage/store"
)

// Defaults and bounds of stores on PostgreSQL.
const (
	DefaultStoreSchema      = postgres.DefaultSchema
	DefaultStoreConnections = postgres.DefaultConnections
	DefaultStoreCells       = postgres.DefaultCells
	DefaultStoreReads       = string(postgres.ReadLease)

	// DefaultEraseEvery is for servers that people rely on; a development server waits for nothing.
	DefaultEraseEvery = 24 * time.Hour

	mostStoreConnections = 1000
	// mostEraseEvery is in the order of the time that laws give for an erasure.
	mostEraseEvery = 14 * 24 * time.Hour
	// mostSchemaName is the greatest length of names in PostgreSQL, in bytes.
	mostSchemaName = 63
)

// StoreOptions specify the PostgreSQL server that the store is on. Without an address the store is in the data folder.
type StoreOptions struct {
	Address string
	// PasswordFile is the file with the password, unless the address has one.
	PasswordFile string
	// AddressShown reports whether the address was given on the command line, where others can read it.
	AddressShown bool
	// Schema is the schema of the tables; "" means DefaultStoreSchema.
	Schema string
	// AllowSingle and AllowAsync accept servers that may lose acknowledged writes; Plain accepts connections to other
	// machines without verified TLS.
	AllowSingle, AllowAsync, Plain bool
	// Reads is what answers rely on, lease, quorum or primary; "" means DefaultStoreReads.
	Reads string
	// Connections is how many connections the store uses; 0 means DefaultStoreConnections.
	Connections int
	// Cells is how many partitions the large tables of a new schema have; 0 means DefaultStoreCells.
	Cells int
	// NodeSecretFile is the file with the servers' node secret, for commands that open the store without a server.
	NodeSecretFile string

	password string
	// keys, if not nil, are the keys that the store is sealed with; node, if not nil, restores a backup to it.
	keys []*keyfile.File
	node *postgres.Node
}

// Given reports whether the store is on PostgreSQL.
func (o *StoreOptions) Given() bool { return o.Address != "" }

// Check returns everything that is wrong with the options, and reads the password.
func (o *StoreOptions) Check() []error {
	var c checks
	c.store(o)
	return c.found
}

func (c *checks) store(o *StoreOptions) {
	o.password, o.keys = "", nil
	if o.NodeSecretFile != "" {
		for _, secret := range c.nodeSecrets(o.NodeSecretFile) {
			o.keys = append(o.keys, keyfile.OfSecret(secret))
		}
	}
	if o.PasswordFile != "" {
		var err error
		if o.password, err = readPassword(o.PasswordFile); err != nil {
			c.add("store-password-file: %w", err)
		} else if o.password == "" {
			c.add("store-password-file: there is no password in %s", o.PasswordFile)
		}
	}
	switch {
	case len(o.Schema) > mostSchemaName || strings.ContainsRune(o.Schema, 0):
		c.add("store-schema: %q is no name of a schema, which has %d bytes at most", o.Schema, mostSchemaName)
	case strings.HasPrefix(o.Schema, "pg_") || o.Schema == "information_schema":
		c.add("store-schema: the schema %s belongs to PostgreSQL itself; choose another one", o.Schema)
	}
	if n := o.Connections; n != 0 && (n < postgres.LeastConnections || n > mostStoreConnections) {
		c.add("store-connections: %d is not between %d and %d", n, postgres.LeastConnections, mostStoreConnections)
	}
	if n := o.Cells; n < 0 || n > postgres.MostCells {
		c.add("store-cells: %d is not between 1 and %d", n, postgres.MostCells)
	}
	reads := postgres.Reads(o.Reads)
	if modes := postgres.ReadModes(); reads != "" && !slices.Contains(modes, reads) {
		c.add("store-reads: %q is none of %s, %s and %s", o.Reads, modes[0], modes[1], modes[2])
	}
	if !o.Given() {
		other := o.PasswordFile != "" || o.AllowAsync || o.AllowSingle || o.Plain
		if other || cmp.Or(reads, postgres.ReadLease) != postgres.ReadLease {
			c.add("store: the address is missing beside other settings of the store")
		}
		return
	}
	address, found := postgres.ParseAddress(o.Address, o.password, o.Plain)
	for _, err := range found {
		c.add("store: %w", err)
	}
	if address != nil && address.HasPassword() && o.AddressShown {
		c.add("store: the password in the address shows in every list of processes: set the address by the variable J17_STORE, or give the password by store-password-file")
	}
}

// erasures checks how often tables may be written anew.
func (c *checks) erasures(o *Options) {
	if o.EraseEvery < 0 || o.EraseEvery > mostEraseEvery {
		c.add("erasure-every: %s is not between 0s and %s", o.EraseEvery, mostEraseEvery)
	}
}

// dataBeside adds an error if the store is on PostgreSQL and the data folder has a store too.
func (c *checks) dataBeside(o *Options) {
	if !o.Store.Given() || o.Dir == "" {
		return
	}
	if _, err := os.Stat(o.storeFolder()); err == nil {
		c.add("data: the folder %s holds a store, and beside a store on PostgreSQL it is for what may be lost only. Name another folder, or leave store out to run on this one", o.Dir)
	}
}

// postgres returns the options of a store on PostgreSQL. It seals with the first of the keys, and opens with any.
func (o *StoreOptions) postgres(clk clock.Clock, logger *slog.Logger, keys []*keyfile.File) postgres.Options {
	p := postgres.Options{
		Address: o.Address, Password: o.password, Plain: o.Plain, Schema: o.Schema, Connections: o.Connections,
		Cells: o.Cells, AllowAsync: o.AllowAsync, AllowSingle: o.AllowSingle, Clock: clk, Logger: logger,
		Sealed:    sealedElsewhere(),
		Restoring: o.node != nil, Node: o.node, Reads: postgres.Reads(o.Reads),
	}
	if o.keys != nil {
		keys = o.keys
	}
	if len(keys) > 0 {
		p.Key, p.Keys = keys[0], keys[1:]
	}
	return p
}

// String returns the address without the password, and the schema.
func (o *StoreOptions) String() string {
	address, _ := postgres.ParseAddress(o.Address, o.password, o.Plain)
	return address.String() + " (schema " + cmp.Or(o.Schema, DefaultStoreSchema) + ")"
}

// storeKeys returns the keys that a store on PostgreSQL may be sealed with, of which the first one is used from now on:
// those of the node secrets, then the key file of the data folder, which must be kept if it is used.
func (o *Options) storeKeys() (keys []*keyfile.File) {
	for _, secret := range o.nodeSecrets {
		keys = append(keys, keyfile.OfSecret(secret))
	}
	if o.Dir != "" {
		keys = append(keys, keyfile.At(keyFileOf(o.Dir)))
	}
	return keys
}

// openStore opens the store, and returns it with the key that seals its data.
func (o *Options) openStore(ctx context.Context, node *postgres.Node) (store.Store, *keyfile.File, error) {
	if o.Store.Given() {
		p := o.Store.postgres(o.Clock, o.Logger, o.storeKeys())
		if node != nil {
			p.Node = node
		}
		p.EraseEvery = o.EraseEvery
		opened, err := postgres.Open(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		if len(o.nodeSecrets) == 0 && o.Store.keys == nil {
			o.Logger.LogAttrs(ctx, slog.LevelInfo, "secrets in the store are sealed with the key file of the data folder: keep a copy of it, or give a node secret", slog.String("file", keyFileOf(o.Dir)))
		}
		return store.Whole(opened), opened.Key(), nil
	}
	opened, err := pebble.Open(pebble.Options{
		Dir: o.storeFolder(), Clock: o.Clock, Logger: o.Logger, MaxClockJump: o.maxClockJump, Sealed: sealedSpaces(),
		KeyFile:    keyFileOf(o.Dir),
		CacheBytes: int64(cmp.Or(o.StoreCacheMiB, storeCacheMiB(Memory()))) << 20,
	})
	if err != nil {
		return nil, nil, err
	}
	return store.Whole(opened), keyfile.At(keyFileOf(o.Dir)), nil
}

// makeFolder creates the data folder. undo removes it again if it is new and still empty.
func makeFolder(dir string) (undo func(), err error) {
	_, err = os.Stat(dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	return func() {
		if isNew {
			_ = os.Remove(dir) // fails if the folder is not empty
		}
	}, os.MkdirAll(dir, 0o700)
}

// ownFilesSpace has files of a server that other servers of the same store need too: the setup token, and what the ACME
// certificate authority has issued.
const ownFilesSpace store.Space = "own_files"

// ownFilesPart declares the items. Missing ones are created again, so backups omit them.
func ownFilesPart() part.Part {
	return part.Part{Name: "own files", Spaces: []part.Space{
		{Declared: store.Declared{Space: ownFilesSpace}, Sealed: part.Always, Derived: true},
	}}
}

// files returns where the server keeps small secrets: in a folder below the data folder, or as items if the store is on
// PostgreSQL.
func (s *Server) files(folder string) autocert.Cache {
	if s.options.Store.Given() {
		return itemFiles{of: s, folder: folder}
	}
	return autocert.DirCache(filepath.Join(s.options.Dir, folder))
}

// itemFiles stores files as items of the system tenant.
type itemFiles struct {
	of     *Server
	folder string
}

// Get is part of autocert.Cache.
func (f itemFiles) Get(ctx context.Context, name string) ([]byte, error) {
	item, err := f.of.store.Get(ctx, j17.System, ownFilesSpace, f.key(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil, autocert.ErrCacheMiss
	}
	return item.Value, err
}

// Put is part of autocert.Cache.
func (f itemFiles) Put(ctx context.Context, name string, data []byte) error {
	return f.of.store.Write(ctx, j17.System, []store.Side{
		{Space: ownFilesSpace, Key: f.key(name), Op: store.Put, Value: data},
	})
}

// Delete is part of autocert.Cache.
func (f itemFiles) Delete(ctx context.Context, name string) error {
	return f.of.store.Write(ctx, j17.System, []store.Side{{Space: ownFilesSpace, Key: f.key(name), Op: store.Delete}})
}

func (f itemFiles) key(name string) string { return f.folder + "/" + name }

// StoreReport describes a server before a store is opened there.
type StoreReport = postgres.Report

// StoreStats is how much a store holds.
type StoreStats = postgres.Stats

// Look checks the server and the schema, and changes nothing.
func (o *StoreOptions) Look(ctx context.Context, logger *slog.Logger) (StoreReport, error) {
	return postgres.Check(ctx, o.postgres(nil, logger, nil))
}

// Migrate migrates the tables to the version of this program, and returns the version that they had, 0 for none, and
// the one that they have.
func (o *StoreOptions) Migrate(ctx context.Context, logger *slog.Logger) (from, to int, err error) {
	return postgres.Migrate(ctx, o.postgres(nil, logger, nil))
}

// Measure returns how much the store holds.
func (o *StoreOptions) Measure(ctx context.Context, logger *slog.Logger) (StoreStats, error) {
	return postgres.Measure(ctx, o.postgres(nil, logger, nil))
}
