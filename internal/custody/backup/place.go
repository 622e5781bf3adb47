package backup

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/follow/outbound"
)

// place is where backups are: in a folder, or in an object store.
type place struct {
	Folder string `json:"folder,omitempty"`
	S3     *S3    `json:"s3,omitempty"`
}

// String returns the place as users write it, which identifies it.
func (p place) String() string {
	if p.S3 == nil {
		return p.Folder
	}
	return strings.TrimSuffix("s3://"+p.S3.Bucket+"/"+strings.Trim(p.S3.Prefix, "/"), "/")
}

// same reports whether two places are one.
func (p place) same(q place) bool {
	if p.S3 == nil || q.S3 == nil {
		return p.S3 == nil && q.S3 == nil && p.Folder == q.Folder
	}
	return p.S3.Endpoint == q.S3.Endpoint && p.String() == q.String()
}

// name identifies the place.
func (p place) name() string {
	if p.S3 == nil {
		return p.Folder
	}
	return p.S3.Endpoint + " " + p.String()
}

// places opens the places where backups are.
type places struct {
	settings *settingsStore
	clock    clock.Clock
	folder   string
	// private allows object stores at addresses of this machine and of the networks around it.
	private bool
}

// of returns the place to which backups go by settings.
func (ps *places) of(set *Settings) place {
	if set.S3 != nil {
		return place{S3: set.S3}
	}
	return place{Folder: ps.folder}
}

// open opens a place. Credentials may have changed since it was stored: those of the settings are used if they are for
// it.
func (ps *places) open(p place, set *Settings) (*repository.Repository, error) {
	if p.S3 == nil {
		return repository.OpenFolder(p.Folder, ps.clock), nil
	}
	at := *p.S3
	if set.S3 != nil && p.same(place{S3: set.S3}) {
		at = *set.S3
	} else if err := ps.settings.unseal(&at); err != nil {
		return nil, err
	}
	if at.SecretKey == "" {
		return nil, errors.New("the secret key of S3 was sealed on another server, or its key file is gone. Set s3 again in the backup settings, with its secret_key")
	}
	o := at.options()
	dialer := outbound.Dialer(ps.private)
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if errors.Is(err, outbound.ErrAddress) {
			return nil, &repository.RefusedError{Reason: outbound.ErrAddress.Error()}
		}
		return conn, err
	}
	return repository.OpenS3(o, ps.clock)
}

// sealOf returns the seal of a tenant's backup. A backup of the whole server without recipients of its own is encrypted
// to those of all instances: data that one of them wants encrypted is nowhere in clear.
func (s *Service) sealOf(ctx context.Context, t j17.Tenant, set *Settings) (repository.Seal, error) {
	recipients := set.Recipients
	if t == j17.System && len(recipients) == 0 {
		for _, i := range s.Registry.Instances.All() {
			of, _, err := s.settings.load(ctx, i.ID)
			if err != nil {
				return repository.Seal{}, err
			}
			recipients = append(recipients, of.Recipients...)
		}
		slices.Sort(recipients)
		recipients = slices.Compact(recipients)
	}
	if len(recipients) == 0 {
		return repository.Seal{}, nil
	}
	key, err := s.Key.Derived(forNames)
	if err != nil {
		return repository.Seal{}, err
	}
	return repository.NewSeal(recipients, key)
}
