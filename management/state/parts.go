// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// What a transaction can have besides records of kinds, see record.Tx.Attach.
type (
	// PutInputs stores inputs under a name, encrypted as those of jobs.
	PutInputs struct {
		Name   string
		Inputs job.Inputs
	}

	// DropInputs removes the inputs under a name.
	DropInputs struct{ Name string }

	// DropLogs removes the logs of a job.
	DropLogs struct{ Job string }
)

// AcceptJob stores a Queued job, which has the next number, with its inputs. Two transactions that were decided on the
// same queue cannot both be committed.
func AcceptJob(tx *record.Tx, j job.Job, in job.Inputs) {
	number := j.Seq()

	record.Put(tx, &job.Newest, &number)
	record.Put(tx, &job.Kind, &j)
	tx.Attach(PutInputs{Name: j.ID, Inputs: in})
}

// DropJob removes a job with its inputs and logs.
func DropJob(tx *record.Tx, id string) {
	tx.Attach(DropLogs{Job: id})
	tx.Attach(DropInputs{Name: id})
	record.Remove(tx, &job.Kind, id)
}
