// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/repository"
)

// repositoryRecord is the commit of the repository of playbooks that is in use.
type repositoryRecord struct {
	Source    string         `json:"source"`
	InUse     *useRecord     `json:"in_use,omitempty"`
	Bad       *refusalRecord `json:"bad,omitempty"`
	Rewritten string         `json:"rewritten,omitempty"`
	Past      []useRecord    `json:"past,omitempty"`
}

type commitRecord struct {
	Hash    string    `json:"hash"`
	Author  string    `json:"author,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Time    time.Time `json:"time"`
}

type useRecord struct {
	Commit commitRecord `json:"commit"`
	Digest string       `json:"digest"`
	Since  time.Time    `json:"since"`
}

type refusalRecord struct {
	Commit commitRecord `json:"commit"`
	Reason string       `json:"reason"`
	Remedy string       `json:"remedy,omitempty"`
	Time   time.Time    `json:"time"`
}

func newUseRecord(u repository.Use) useRecord {
	return useRecord{Commit: commitRecord(u.Commit), Digest: u.Digest, Since: u.Since}
}

func (r useRecord) use() repository.Use {
	return repository.Use{Commit: configuration.Commit(r.Commit), Digest: r.Digest, Since: r.Since}
}

func newRefusalRecord(f repository.Refusal) refusalRecord {
	return refusalRecord{Commit: commitRecord(f.Commit), Reason: f.Reason, Remedy: f.Remedy, Time: f.Time}
}

func (r refusalRecord) refusal() repository.Refusal {
	return repository.Refusal{Commit: configuration.Commit(r.Commit), Reason: r.Reason, Remedy: r.Remedy, Time: r.Time}
}

func newRepositoryRecord(r repository.Record) repositoryRecord {
	return repositoryRecord{
		Source: r.Source, InUse: convertPointer(r.InUse, newUseRecord), Bad: convertPointer(r.Bad, newRefusalRecord),
		Rewritten: r.Rewritten, Past: convertSlice(r.Past, newUseRecord),
	}
}

func (r repositoryRecord) record() repository.Record {
	return repository.Record{
		Source:    r.Source,
		InUse:     convertPointer(r.InUse, useRecord.use),
		Bad:       convertPointer(r.Bad, refusalRecord.refusal),
		Rewritten: r.Rewritten,
		Past:      convertSlice(r.Past, useRecord.use),
	}
}

// convertPointer converts a pointer. It returns nil for nil.
func convertPointer[A, B any](from *A, convert func(A) B) *B {
	if from == nil {
		return nil
	}

	to := convert(*from)
	return &to
}

// The record is outside the view: it is read when a job is accepted, and by the watch.
func (s *Store) repositoryKey() string { return s.key("/repository") }

// LoadRepository returns the record of the repository of playbooks, or the zero value.
func (s *Store) LoadRepository(ctx context.Context) (repository.Record, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(ctx, s.repositoryKey())
	if err != nil {
		return repository.Record{}, s.failure(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return repository.Record{}, nil
	}

	r, err := decode[repositoryRecord](resp.Kvs[0].Value)

	return r.record(), err
}

// SaveRepository replaces the record of the repository of playbooks.
func (s *Store) SaveRepository(ctx context.Context, r repository.Record) error {
	op, err := put(s.repositoryKey(), newRepositoryRecord(r))
	if err != nil {
		return err
	}
	_, err = s.commitRecorded(ctx, etcd.Ops{Then: []clientv3.Op{op}})
	return err
}
