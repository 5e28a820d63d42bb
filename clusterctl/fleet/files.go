// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Stdin is the name of the file that stands for stdin.
const Stdin = "-"

// maxSecret bounds the value of a secret, in bytes.
const maxSecret = 64 << 10

// Sources reads the files at a path: one file, or the files *.yaml, *.yml and *.json of
// a folder in the order of their names. stdin is read for the path Stdin. Together
// they have at most api.MaxFleetBytes. Errors are of KindInvalid.
func Sources(path string, stdin func() ([]byte, error)) ([]api.FleetFile, error) {
	if path == Stdin {
		data, err := stdin()
		if err != nil {
			return nil, err
		}
		return texts([]api.FleetFile{{Name: "stdin", Text: string(data)}})
	}

	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(err)
	}

	if !info.IsDir() {
		data, err := readBounded(path, api.MaxFleetBytes)
		if err != nil {
			return nil, err
		}
		return texts([]api.FleetFile{{Name: path, Text: string(data)}})
	}

	// In the order of the names.
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, unreadable(err)
	}

	var (
		sources []api.FleetFile
		left    = api.MaxFleetBytes
	)

	for _, e := range entries {
		isFleet := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name()))
		if !isFleet || strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}

		name := filepath.Join(path, e.Name())

		data, err := readBounded(name, left)
		if err != nil {
			return nil, err
		}
		left -= len(data)
		sources = append(sources, api.FleetFile{Name: name, Text: string(data)})
	}

	if len(sources) == 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s has no file *.yaml, *.yml or *.json", path).
			Do("name a fleet file, or a folder with some")
	}

	return texts(sources)
}

// texts refuses files that are no text: JSON cannot hold them.
func texts(files []api.FleetFile) ([]api.FleetFile, error) {
	for _, f := range files {
		if !utf8.ValidString(f.Text) {
			return nil, inventory.Errorf(inventory.KindInvalid, "%s:1:1: the file is not UTF-8 text", f.Name).
				Do("correct the file; nothing was changed")
		}
	}

	return files, nil
}

func unreadable(err error) error {
	return inventory.Errorf(inventory.KindInvalid, "cannot read the fleet file: %w", err).
		Do("give a file, a folder of files, or - for stdin")
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(err)
	}
	defer f.Close()

	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, unreadable(err)
	}

	if len(data) > limit {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s: more than %d bytes", path, limit).
			Do("split the fleet, or give the right file")
	}

	return data, nil
}

// FillSecrets reads the secrets of the steps from their sources. The error has the positions
// of those that cannot be read, and is of KindInvalid.
func FillSecrets(steps []api.FleetStep) error {
	var problems []string

	for _, s := range steps {
		if s.Apply == nil {
			continue
		}

		for i := range s.Apply.Changes {
			w := &s.Apply.Changes[i]
			if w.Secret == nil {
				continue
			}
			value, err := secretValue(*w.Secret)
			if err != nil {
				problems = append(problems, w.Secret.At.String()+": "+err.Error())
				continue
			}

			if w.To, err = json.Marshal(value); err != nil {
				return err
			}

			w.Secret = nil
		}
	}

	if len(problems) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "%s", strings.Join(problems, "\n")).
		Do("correct the file; nothing was changed")
}

// secretValue reads a secret from its source. A relative path begins at the folder of the
// fleet file.
func secretValue(s api.FleetSecret) (string, error) {
	if s.Env != "" {
		value, set := os.LookupEnv(s.Env)
		if !set || value == "" {
			return "", fmt.Errorf("the environment variable %s of the secret is not set", s.Env)
		}
		return value, nil
	}

	path := s.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(s.At.File), path)
	}
	data, err := readBounded(path, maxSecret)
	if err != nil {
		return "", fmt.Errorf("the file of the secret: %s",
			strings.TrimPrefix(err.Error(), "cannot read the fleet file: "))
	}

	value := strings.TrimRight(string(data), "\r\n")
	if value == "" {
		return "", fmt.Errorf("the file of the secret, %s, is empty", path)
	}
	return value, nil
}
