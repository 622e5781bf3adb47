package backup

import (
	"encoding/hex"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/custody/backup/repository"
)

// Wire returns the backup as clients see it.
func (b *Backup) Wire() wire.Backup {
	shape := wire.Backup{
		ID: b.ID, Status: string(b.Status), Scope: string(repository.OfEnvironment), Kind: string(b.Kind),
		Parent: wire.OrNull(b.Parent), Encrypted: b.Encrypted,
		Storage: b.Storage(), Bytes: b.Bytes, Progress: wire.BackupProgress{Done: b.Done, Total: b.Total},
		Error:     wire.OrNull(b.Error),
		CreatedAt: b.CreatedAt.Truncate(time.Second),
	}
	if !b.CompletedAt.IsZero() {
		shape.CompletedAt = new(b.CompletedAt.Truncate(time.Second))
	}
	position := func(m *Moment) *string {
		if m.Size == 0 {
			return nil
		}
		return new(m.Position.String())
	}

	// A backup of an environment has one moment, one of a server many.
	if instance, env := b.Of(); instance != "" {
		shape.Environment = &env
		for i := range b.Moments {
			shape.Position, shape.Size, shape.Root = position(&b.Moments[i]), &b.Moments[i].Size,
				new(hex.EncodeToString(b.Moments[i].Root))
		}
		return shape
	}
	shape.Scope = string(repository.OfServer)
	shape.Positions = map[string]map[j17.Environment]*string{}
	for i := range b.Moments {
		instance, env := b.Moments[i].Of()
		if shape.Positions[instance] == nil {
			shape.Positions[instance] = map[j17.Environment]*string{}
		}
		shape.Positions[instance][env] = position(&b.Moments[i])
	}
	return shape
}

// Wire returns the settings as clients see them.
func (set *Settings) Wire() wire.BackupSettings {
	shape := wire.BackupSettings{
		EveryHours: wire.OrNull(set.EveryHours), KeepLast: wire.OrNull(set.KeepLast),
		KeepDays: wire.OrNull(set.KeepDays), Recipients: set.Recipients,
	}
	if shape.Recipients == nil {
		shape.Recipients = []string{}
	}
	if s := set.S3; s != nil {
		shape.S3 = &wire.BackupS3{
			Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region, Prefix: s.Prefix, AccessKey: s.AccessKey,
			SecretKeySet: s.SecretKey != "",
		}
	}
	return shape
}
