// SPDX-License-Identifier: Apache-2.0

package job

// What the tests need of the inside.
const (
	UndoAttempts  = undoAttempts
	BeginAttempts = beginAttempts
)

var Describe = (*Run).describe
