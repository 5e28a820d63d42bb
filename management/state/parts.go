// SPDX-License-Identifier: Apache-2.0

package state

import "github.com/contiv/cluster/management/job"

// What a transaction can have besides records of kinds, see record.Tx.Attach.
type (
	// AcceptJob stores a Queued job with its inputs. The number of the job must be the one after the
	// newest, or the commit is KindConflict.
	AcceptJob struct {
		Job    job.Job
		Inputs job.Inputs
	}

	// PutInputs stores inputs under a name, encrypted as those of jobs.
	PutInputs struct {
		Name   string
		Inputs job.Inputs
	}

	// DropInputs removes the inputs under a name.
	DropInputs struct{ Name string }
)
