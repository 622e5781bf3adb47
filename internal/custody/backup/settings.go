package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"j17"
	"j17/internal/base/keyfile"
	"j17/internal/custody/backup/repository"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// settingsSpace holds the settings of an instance in the tenant of its environment prod, and those of the server in
// that of the registry, so that they are kept with the data they concern.
const settingsSpace store.Space = "backup.settings"

// settingsKey is the only key there.
const settingsKey = "settings"

// Settings are how backups of an instance, or of the whole server, are made and kept. 0 means that there is no such
// rule.
type Settings struct {
	// EveryHours is how many hours after a backup the next one is made.
	EveryHours int `json:"every_hours,omitempty"`
	// KeepLast is how many completed ones are kept, KeepDays for how many days. The newest completed one is always
	// kept.
	KeepLast int `json:"keep_last,omitempty"`
	KeepDays int `json:"keep_days,omitempty"`
	// Recipients are those that backups are encrypted to.
	Recipients []string `json:"recipients,omitempty"`
	// S3, if not nil, is where backups go instead of the server's folder.
	S3 *S3 `json:"s3,omitempty"`
}

// S3 is a place in an object store.
type S3 struct {
	Endpoint  string `json:"endpoint,omitempty"`
	Bucket    string `json:"bucket"`
	Region    string `json:"region,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	AccessKey string `json:"access_key,omitempty"`
	// SecretKey is "" if it is not known. It is only stored encrypted.
	SecretKey string `json:"-"`
	// Sealed is the secret key as it is stored.
	Sealed []byte `json:"sealed,omitempty"`
}

// The upper bounds of settings.
const (
	mostHours = 366 * 24
	mostKept  = 100_000
	mostDays  = 100 * 366
	// mostText bounds the texts of S3, in bytes.
	mostText = 1024
)

// check returns the first mistake in settings.
func (set *Settings) check() error {
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"every_hours", set.EveryHours, mostHours},
		{"keep_last", set.KeepLast, mostKept},
		{"keep_days", set.KeepDays, mostDays},
	} {
		if n.value < 0 || n.value > n.most {
			return j17.Errorf(j17.CodeInvalidField, "'%s' must be a whole number from 1 to %d, or null", n.name, n.most).At(n.name)
		}
	}
	if _, err := repository.NewSeal(set.Recipients, make([]byte, keyfile.Bytes)); err != nil {
		return j17.Errorf(j17.CodeInvalidField, "'recipients' must be age recipients, as `j17 backup keygen` prints them: %s", err.Error()).At("recipients")
	}
	if set.S3 == nil {
		return nil
	}

	// The options of S3. A secret key that cannot be opened here need not be given again.
	for _, text := range []struct{ name, value string }{
		{"endpoint", set.S3.Endpoint},
		{"region", set.S3.Region},
		{"prefix", set.S3.Prefix},
		{"access_key", set.S3.AccessKey},
		{"secret_key", set.S3.SecretKey},
	} {
		if len(text.value) > mostText {
			return j17.Errorf(j17.CodeInvalidField, "'%s' must not be longer than %d bytes", text.name, mostText).At(
				"s3." + text.name,
			)
		}
	}
	at := set.S3.options()
	if set.S3.Sealed != nil {
		at.SecretKey = cmp.Or(at.SecretKey, "not known")
	}
	_, err := repository.OpenS3(at, nil)
	if wrong, ok := errors.AsType[*repository.S3Error](err); ok {
		return j17.Errorf(j17.CodeInvalidField, "'%s' %s", wrong.Member, wrong.Reason).At("s3." + wrong.Member)
	}
	return failure(err)
}

// options are those of the repository.
func (s *S3) options() repository.S3Options {
	return repository.S3Options{
		Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region, Prefix: s.Prefix, AccessKey: s.AccessKey,
		SecretKey: s.SecretKey,
	}
}

// home is the tenant that has the settings of an instance, or with "" those of the server.
func home(instance string) j17.Tenant {
	if instance == "" {
		return j17.System
	}
	return j17.TenantOf(instance, j17.Prod)
}

// Settings returns the settings of an instance, or with "" those of the server. A secret key that cannot be opened is
// left out.
func (s *Service) Settings(ctx context.Context, instance string) (Settings, error) {
	set, _, err := s.settings.load(ctx, instance)
	return set, failure(err)
}

// settingsStore has the settings of instances and of the server.
type settingsStore struct {
	store     Storage
	key       *keyfile.File
	byDefault func(instance string) Settings
}

// load returns settings and their revision.
func (s *settingsStore) load(ctx context.Context, instance string) (set Settings, rev uint64, err error) {
	item, err := s.store.Get(ctx, home(instance), settingsSpace, settingsKey)
	if errors.Is(err, store.ErrNotFound) {
		if s.byDefault != nil {
			set = s.byDefault(instance)
		}
		return set, 0, nil
	}
	if err != nil {
		return set, 0, err
	}
	if err := json.Unmarshal(item.Value, &set); err != nil {
		return set, 0, &store.CorruptionError{Where: string(settingsSpace) + "/" + string(home(instance)), Err: err}
	}
	return set, item.Rev, s.unseal(set.S3)
}

// The purposes of keys that are derived from that of the key file.
const (
	forSecretKeys = "secret keys of S3"
	forNames      = "names of parts"
)

// unseal fills in the secret key of S3, if it can be opened.
func (s *settingsStore) unseal(at *S3) (err error) {
	if at == nil || at.Sealed == nil {
		return nil
	}
	box, err := s.key.Box(forSecretKeys)
	if err != nil {
		return err
	}
	key, err := box.Open(at.place(), at.Sealed)
	if errors.Is(err, keyfile.ErrOther) {
		return nil // code that needs it reports the failure
	}
	at.SecretKey = string(key)
	return err
}

// seal encrypts the secret key for storage.
func (s *settingsStore) seal(at *S3) error {
	box, err := s.key.Box(forSecretKeys)
	if err != nil {
		return err
	}
	at.Sealed = box.Seal(at.place(), []byte(at.SecretKey))
	return nil
}

// place identifies what a secret key is for.
func (s *S3) place() string { return s.Endpoint + "\n" + s.AccessKey }

// Change changes the settings of an instance, or with "" those of the server, and returns them. A secret key that amend
// leaves empty stays if it is for the same endpoint and access key.
func (s *Service) Change(ctx context.Context, instance string, amend func(*Settings)) (Settings, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	set, rev, err := s.settings.amended(ctx, instance, amend)
	if err != nil {
		return set, err
	}
	if set.S3 != nil && set.S3.SecretKey != "" {
		if err := s.settings.seal(set.S3); err != nil {
			return set, failure(err)
		}
	}

	// Store them, and look at the affected tenants again.
	raw, err := json.Marshal(set)
	if err != nil {
		return set, failure(err)
	}
	side := store.Side{Op: store.Put, Space: settingsSpace, Key: settingsKey, Value: raw}.On(rev)
	if err := s.Store.Write(ctx, home(instance), []store.Side{side}); err != nil {
		return set, failure(err)
	}
	for _, scope := range scopesOf(instance) {
		if err := s.touch(ctx, scope); err != nil {
			return set, failure(err)
		}
	}
	rec := control.Record{Action: "backup_settings.change", Instance: instance, Target: instance}
	return set, s.Registry.Audit.Add(ctx, rec)
}

// amended returns the settings after a change, and the revision of those before it.
func (s *settingsStore) amended(ctx context.Context, instance string, amend func(*Settings)) (Settings, uint64, error) {
	set, rev, err := s.load(ctx, instance)
	if err != nil {
		return set, rev, failure(err)
	}
	before := set.S3
	amend(&set)
	if now := set.S3; now != nil && now.SecretKey == "" && before != nil && now.place() == before.place() {
		now.SecretKey = before.SecretKey
	}
	slices.Sort(set.Recipients)
	set.Recipients = slices.Compact(set.Recipients)
	return set, rev, set.check()
}

// scopesOf are the tenants whose list of backups follows the settings of an instance; for the server it is that of the
// registry.
func scopesOf(instance string) []j17.Tenant {
	if instance == "" {
		return []j17.Tenant{j17.System}
	}
	var all []j17.Tenant
	for _, env := range j17.Environments() {
		all = append(all, j17.TenantOf(instance, env))
	}
	return all
}

// instanceOf is the instance of a tenant, "" for the server.
func instanceOf(t j17.Tenant) string {
	instance, _ := split(t)
	return instance
}
