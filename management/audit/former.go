// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/management/record"
)

// takeOver makes the files of an earlier version, if there are any, the beginning of the trail. Each instance had a
// chain of its own: that of the first leader goes on. The files stay, in a folder with another name.
func (t *Trail) takeOver(ctx context.Context) error {
	if t.Former == "" || !t.Leads() {
		return nil
	}

	files, err := filepath.Glob(filepath.Join(t.Former, "*.log"))
	if err != nil {
		return err
	}
	_, at, err := t.head(ctx)
	if err != nil || at > 0 || len(files) == 0 {
		return err
	}

	var h head

	for _, path := range files {
		if err := t.takeOverFile(ctx, &h, path); err != nil {
			return err
		}
	}

	put, err := t.extend(ctx, &h, nil)
	if err != nil {
		return err
	}

	// What waited for its shared entry. An unreadable file has had its day.
	var held []Entry
	text, err := os.ReadFile(filepath.Join(t.Former, "held.json"))
	if err == nil && json.Unmarshal(text, &held) == nil && len(held) > 0 {
		put[newKey()], _ = t.lines(held)
	}

	if _, err := t.Store.WriteAudit(ctx, Write{Guarded: true, Put: put}); err != nil {
		return err
	}

	t.Logger.Infof("the audit trail is in the store now, %d entries; its files are in %s.former", h.Seq, t.Former)

	if err := os.Rename(t.Former, t.Former+".former"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Logger.WithError(err).Warn("the folder of the former audit trail could not be renamed")
	}

	return nil
}

// takeOverFile stores the lines of a file as segments. An incomplete one at the end was never acknowledged.
func (t *Trail) takeOverFile(ctx context.Context, h *head, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]

	if _, err := fmt.Sscanf(filepath.Base(path), "%d.log", &h.Segment); err != nil {
		return err
	}

	h.Seq = h.Segment - 1

	for len(text) > 0 {
		size := bytes.LastIndexByte(text[:min(len(text), writeSize)], '\n') + 1
		if size == 0 { // one damaged line is longer
			size = bytes.IndexByte(text, '\n') + 1
		}

		h.Segment, h.Begun = h.Seq+1, time.Now()
		h.follow(text[:size])

		w := Write{Guarded: true, Put: map[string][]byte{segmentKey(h.Segment): record.Compress(text[:size])}}
		if _, err := t.Store.WriteAudit(ctx, w); err != nil {
			return err
		}
		text = text[size:]
	}

	return nil
}

// takeOverHeld makes entries of the refusals that an earlier version held back, each instance in a record.
func (t *Trail) takeOverHeld(ctx context.Context) error {
	held, err := t.Store.AuditRecords(ctx, Query{Prefix: heldPrefix})
	if err != nil || len(held) == 0 {
		return err
	}

	w := Write{Put: map[string][]byte{}}

	for _, one := range held {
		w.Drop = append(w.Drop, one.Key)
		if lines, err := record.Expand(one.Value); err == nil && len(lines) > 0 {
			w.Put[newKey()] = lines
		}
	}

	_, err = t.Store.WriteAudit(ctx, w)

	return err
}
