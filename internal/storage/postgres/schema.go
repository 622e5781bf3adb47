package postgres

// The tables, all in one schema. docs/internals/storage.md describes them.
//
// Names and keys are bytea, so that they sort by their bytes. A stream is the aggregate type, a zero byte, and the id;
// its head is its last row in events. Positions are two columns, which are compared as a row.
//
// A row of items that a row of cleared covers counts as deleted, and is deleted later. So are the rows of a tenant that
// unnamed has without an owner. One with an owner is being loaded by the store whose start has that number.

// schema1 creates the tables of version 1; %[1]d is the number of cells.
const schema1 = `
CREATE TABLE meta (key text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE cluster (
	one int PRIMARY KEY CHECK (one = 1), active text NOT NULL, url text NOT NULL, incarnation bigint NOT NULL,
	term bigint NOT NULL, beat bigint NOT NULL, starts bigint NOT NULL, rewrites bigint NOT NULL
);
CREATE TABLE names (name bytea PRIMARY KEY, t int NOT NULL UNIQUE);
CREATE TABLE unnamed (t int PRIMARY KEY, owner bigint);
CREATE TABLE tenants (
	t int PRIMARY KEY, ver bigint NOT NULL, term bigint NOT NULL, batch bytea, ms bigint NOT NULL, n bigint NOT NULL,
	last_time bigint NOT NULL, events bigint NOT NULL, rev bigint NOT NULL, lane bigint NOT NULL, lane_n bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0);
CREATE INDEX tenants_lane ON tenants (lane, lane_n);
CREATE TABLE events (
	t int NOT NULL, ms bigint NOT NULL, n bigint NOT NULL, kind smallint NOT NULL, stream bytea, version bigint,
	type bytea, time bigint, first_time bigint, generation bigint, chain bytea, present bytea, kept bytea, tags bytea,
	data_at int, metadata_at int, raw bytea NOT NULL, PRIMARY KEY (t, ms, n)
) PARTITION BY HASH (t);
CREATE UNIQUE INDEX events_stream ON events (t, stream, version) WHERE kind = 0;
CREATE INDEX events_notes ON events (t, ms, n) WHERE kind = 1;
CREATE INDEX events_first ON events (t, stream) WHERE kind = 0 AND version = 1;
CREATE TABLE tags (
	t int NOT NULL, tag bytea NOT NULL, ms bigint NOT NULL, n bigint NOT NULL, PRIMARY KEY (t, tag, ms, n)
) PARTITION BY HASH (t);
CREATE TABLE items (
	t int NOT NULL, space smallint NOT NULL, key bytea NOT NULL, rev bigint NOT NULL, expires bigint, due bigint,
	claimed bigint, holder bigint, sealed boolean NOT NULL, sum bigint NOT NULL, value bytea NOT NULL,
	PRIMARY KEY (t, space, key)
) PARTITION BY HASH (t);
CREATE INDEX items_due ON items (space, due, t) WHERE due IS NOT NULL;
CREATE INDEX items_expires ON items (expires) WHERE expires IS NOT NULL;
CREATE INDEX items_claimed ON items (due) WHERE claimed IS NOT NULL;
CREATE TABLE commands (
	t int NOT NULL, id bytea NOT NULL, expires bigint, result bytea NOT NULL, PRIMARY KEY (t, id)
) PARTITION BY HASH (t);
CREATE INDEX commands_expires ON commands (expires) WHERE expires IS NOT NULL;
CREATE TABLE spaces (space smallint PRIMARY KEY, name bytea UNIQUE NOT NULL);
CREATE TABLE cleared (
	t int NOT NULL, space smallint NOT NULL, from_key bytea NOT NULL, to_key bytea, rev bigint NOT NULL
);
CREATE INDEX cleared_place ON cleared (t, space);
CREATE TABLE cells (
	cell int PRIMARY KEY, wanted bigint NOT NULL, copied bigint NOT NULL, done bigint NOT NULL, since bigint NOT NULL,
	rewritten bigint NOT NULL, run bigint NOT NULL, holder bigint NOT NULL, lsn text NOT NULL, report bytea
);
INSERT INTO cells SELECT i, 0, 0, 0, 0, 0, 0, 0, '' FROM generate_series(0, %[1]d - 1) i;
INSERT INTO meta VALUES ('version', '1'), ('tenants', '0'), ('migration', '');
INSERT INTO cluster VALUES (1, '', '', 0, 0, 0, 0, 0);
DO $$ BEGIN
	FOR i IN 0..%[1]d - 1 LOOP
		EXECUTE format('CREATE TABLE events_%%s PARTITION OF events FOR VALUES WITH (MODULUS %[1]d, REMAINDER %%s)', i, i);
		EXECUTE format('CREATE TABLE tags_%%s PARTITION OF tags FOR VALUES WITH (MODULUS %[1]d, REMAINDER %%s)', i, i);
		EXECUTE format('CREATE TABLE items_%%s PARTITION OF items FOR VALUES WITH (MODULUS %[1]d, REMAINDER %%s)', i, i);
		EXECUTE format('CREATE TABLE commands_%%s PARTITION OF commands FOR VALUES WITH (MODULUS %[1]d, REMAINDER %%s)', i, i);
	END LOOP;
END $$;
ALTER TABLE events ALTER stream SET STATISTICS 0, ALTER type SET STATISTICS 0, ALTER chain SET STATISTICS 0,
	ALTER present SET STATISTICS 0, ALTER kept SET STATISTICS 0, ALTER tags SET STATISTICS 0, ALTER raw SET STATISTICS 0;
ALTER TABLE tags ALTER tag SET STATISTICS 0;
ALTER TABLE items ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0;
ALTER TABLE commands ALTER id SET STATISTICS 0, ALTER result SET STATISTICS 0;
`
