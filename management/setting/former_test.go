// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"io/fs"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/management/api"
)

// TestFormerWithoutFolder: a change stands, though the folder is gone when it is read. The log has the reason.
func TestFormerWithoutFolder(t *testing.T) {
	t.Parallel()

	log, logged := test.NewNullLogger()
	s := &Settings{opts: Options{
		Logger: log, Pin: func(context.Context) (string, error) { return "", fs.ErrNotExist },
	}}
	config := api.Config{keyPlaybooks: {}}

	if names := s.addFormer(t.Context(), config); names != nil || config[keyPlaybooks].Former != nil {
		t.Errorf("former nodes: %q, %+v", names, config)
	}

	if last := logged.LastEntry(); last == nil || last.Level != logrus.WarnLevel {
		t.Errorf("logged: %+v", last)
	}
}
