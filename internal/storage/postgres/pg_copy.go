package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"

	"github.com/jackc/pgx/v5"
)

// COPY stores many rows with less work than INSERT. It is specific to PostgreSQL: another engine would insert the rows.

// copyRows are rows in the binary form that COPY takes.
type copyRows struct {
	table   string
	columns []string
	data    []byte
}

// reset removes all rows and writes the header: the signature, no flags, and no extension.
func (c *copyRows) reset() {
	c.data = append(append(c.data[:0], "PGCOPY\n\xff\r\n\x00"...), make([]byte, 8)...)
}

// row begins a row, whose columns follow.
func (c *copyRows) row() { c.data = binary.BigEndian.AppendUint16(c.data, uint16(len(c.columns))) }

func (c *copyRows) length(n int) { c.data = binary.BigEndian.AppendUint32(c.data, uint32(n)) }

// null adds a column without a value.
func (c *copyRows) null() { c.length(-1) }

// int2, int4 and int8 add columns of the types smallint, int and bigint.
func (c *copyRows) int2(v int16) {
	c.length(2)
	c.data = binary.BigEndian.AppendUint16(c.data, uint16(v))
}

func (c *copyRows) int4(v int32) {
	c.length(4)
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(v))
}

func (c *copyRows) int8(v int64) {
	c.length(8)
	c.data = binary.BigEndian.AppendUint64(c.data, uint64(v))
}

// bytes adds a column of the type bytea, null for nil.
func (c *copyRows) bytes(v []byte) {
	if v == nil {
		c.null()
		return
	}
	c.length(len(v))
	c.data = append(c.data, v...)
}

// text is bytes for a string.
func (c *copyRows) text(v string) {
	c.length(len(v))
	c.data = append(c.data, v...)
}

// send stores the rows.
func (c *copyRows) send(ctx context.Context, conn *pgx.Conn) error {
	const noMore = 1<<16 - 1
	c.data = binary.BigEndian.AppendUint16(c.data, noMore)
	_, err := conn.PgConn().CopyFrom(
		ctx, bytes.NewReader(c.data), "COPY "+c.table+" ("+strings.Join(c.columns, ", ")+") FROM STDIN BINARY",
	)
	return err
}
