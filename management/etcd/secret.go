// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Secrets encrypts the values of secret variables in records, and decrypts them. All
// methods may be called at once.
type Secrets struct {
	ring     atomic.Pointer[secret.Ring]
	patterns atomic.Pointer[func() configuration.Secrets]
	problem  atomic.Pointer[error] // why nothing can be encrypted, or nil

	// writing is held while a write is under way, from its encryption to its commit. A
	// rotation waits for such writes before it looks for values of the old key.
	writing sync.RWMutex
}

// NewSecrets returns Secrets with the keys of the ring. problem is the reason why they
// cannot encrypt, or nil; what the ring has keys for can be read in any case. Names are
// secret by configuration.DefaultSecrets until UsePatterns.
func NewSecrets(ring secret.Ring, problem error) *Secrets {
	s := &Secrets{}
	s.ring.Store(&ring)
	s.UsePatterns(configuration.DefaultSecrets)
	s.setProblem(problem)
	return s
}

func (s *Secrets) setProblem(problem error) { s.problem.Store(&problem) }

// Problem returns the reason why no secret can be encrypted, or nil.
func (s *Secrets) Problem() error { return *s.problem.Load() }

// UsePatterns sets the function that returns the patterns of secret names. It must not
// block.
func (s *Secrets) UsePatterns(patterns func() configuration.Secrets) { s.patterns.Store(&patterns) }

func (s *Secrets) protects(name string, value any) bool {
	patterns := *s.patterns.Load()
	return patterns().Protects(name, value)
}

// hold delays rotations until release is called. The caller encrypts and commits in
// between.
func (s *Secrets) hold() (release func()) {
	s.writing.RLock()
	return s.writing.RUnlock
}

// The forms of values in records. A value that looks like one of them is wrapped with
// formPlain.
const (
	formSealed = "$sealed" // the box of the value
	formShared = "$shared" // the number of the value among the secrets of a job
	formFormer = "$former" // the box of the variable, in the history of a change that nobody could read
	formSource = "$source" // a source outside has the value
	formLost   = "$lost"   // the value could not be read when this record was written
	formPlain  = "$plain"
)

// formOf returns the form and the content of a stored value; "" for a plain one.
func formOf(value any) (form string, content any) {
	m, ok := value.(map[string]any)
	if !ok || len(m) != 1 {
		return "", nil
	}

	for key, content := range m {
		if strings.HasPrefix(key, "$") {
			return key, content
		}
	}

	return "", nil
}

// document is the encrypted content: a value, and whether it is secret whatever its name.
type document struct {
	Name   string `json:"name,omitempty"` // of the variable, where the place lacks it
	Value  any    `json:"value"`
	Marked bool   `json:"marked,omitempty"`
}

// newDocument returns the document of a value, which has to be known.
func newDocument(value any) (document, error) {
	s, marked := value.(configuration.Secret)
	if !marked {
		return document{Value: value}, nil
	}
	plain, err := s.Reveal()

	return document{Value: plain, Marked: true}, err
}

// value returns the value of the document as variables have it.
func (d document) value() any {
	if d.Marked {
		return configuration.NewSecret(d.Value)
	}
	return d.Value
}

// UnmarshalJSON decodes into the normal form of configuration.Vars.
func (d *document) UnmarshalJSON(data []byte) error {
	var fields configuration.Vars
	if err := fields.UnmarshalJSON(data); err != nil {
		return err
	}

	d.Name, _ = fields["name"].(string)
	d.Value = fields["value"]
	d.Marked, _ = fields["marked"].(bool)

	return nil
}

// errLost is the problem of a secret that was not readable when its record was written.
const errLost = "it was not readable when this was recorded"

// errCannotSeal returns the error for a write with secrets.
func errCannotSeal(name string, problem error) error {
	refused := inventory.Errorf(inventory.KindUnavailable, "the secret variable %q cannot be stored: %w", name, problem)
	if e, ok := errors.AsType[*inventory.Error](problem); ok {
		refused.Message = fmt.Sprintf("the secret variable %q cannot be stored: %s", name, e.Message)
		refused.Remedy = e.Remedy
	}

	return refused
}

// sealVars returns the variables of a place as they are stored. A secret that cannot be
// read is stored as it is at its own place and in the history of that, and refused at
// another one, unless lose is set: then it is stored as lost.
func (s *Secrets) sealVars(at secret.Place, vars configuration.Vars, lose bool) (configuration.Vars, error) {
	if vars == nil {
		return nil, nil
	}

	out := make(configuration.Vars, len(vars))
	for name, value := range vars {
		stored, err := s.sealValue(at.With(name), value, lose)
		if err != nil {
			return nil, err
		}
		out[name] = stored
	}

	return out, nil
}

// sealValue returns the value of a variable as it is stored. The last part of the place
// is its name.
func (s *Secrets) sealValue(at secret.Place, value any, lose bool) (any, error) {
	name := at[len(at)-1]

	if stored, done, err := storeUnknown(at, value, lose); done || err != nil {
		return stored, err
	}

	if !s.protects(name, value) {
		return storePlain(value), nil
	}

	d, err := newDocument(value)
	if err != nil {
		return nil, err
	}
	box, err := s.seal(at, name, d)
	if err != nil {
		return nil, err
	}
	return map[string]any{formSealed: string(box)}, nil
}

// seal encrypts a document. name is of the variable, for errors.
func (s *Secrets) seal(at secret.Place, name string, document any) (secret.Box, error) {
	if problem := s.Problem(); problem != nil {
		return "", errCannotSeal(name, problem)
	}

	plain, err := json.Marshal(document)
	if err != nil {
		return "", err
	}
	box, err := s.ring.Load().Seal(at, plain)
	if err != nil {
		return "", errCannotSeal(name, err)
	}
	return box, nil
}

// storeUnknown returns the stored form of a secret without a known value. done is false
// for other values.
func storeUnknown(at secret.Place, value any, lose bool) (stored any, done bool, err error) {
	hidden, ok := value.(configuration.Secret)
	if !ok {
		return nil, false, nil
	}
	if hidden.Sourced() {
		return map[string]any{formSource: true}, true, nil
	}

	place, box, locked := hidden.Locked()

	switch {
	case !locked:
		return nil, false, nil
	case place == at.String() && box != "":
		return map[string]any{formSealed: box}, true, nil
	case place == formerPlace(at).String() && box != "":
		return map[string]any{formFormer: box}, true, nil
	case lose:
		return map[string]any{formLost: true}, true, nil
	}

	return nil, true, inventory.Errorf(inventory.KindRefused, "the secret variable %q cannot be read: %s",
		at[len(at)-1], hidden.Problem()).
		Do("restore its key, or set the variable anew")
}

// storePlain returns the stored form of a value that is not encrypted.
func storePlain(value any) any {
	if form, _ := formOf(value); form != "" {
		return map[string]any{formPlain: value}
	}
	return value
}

// openVars returns variables of a place from their stored form. A secret that cannot be
// decrypted is locked.
func (s *Secrets) openVars(at secret.Place, stored configuration.Vars) configuration.Vars {
	if stored == nil {
		return nil
	}

	vars := make(configuration.Vars, len(stored))
	for name, value := range stored {
		vars[name] = s.openValue(at.With(name), value)
	}

	return vars
}

// openPlace is openVars as a record.Convert.
func (s *Secrets) openPlace(at []string, stored map[string]any) (map[string]any, error) {
	return s.openVars(at, stored), nil
}

func (s *Secrets) openValue(at secret.Place, stored any) any {
	if place, box := boxOf(at, stored); box != "" {
		var d document
		if err := s.open(place, box, &d); err != nil {
			return configuration.LockedSecret(place.String(), string(box), err.Error())
		}
		return d.value()
	}

	form, content := formOf(stored)

	switch form {
	case formSealed, formFormer:
		return configuration.LockedSecret(at.String(), "", errLost)
	case formSource:
		return configuration.SourcedSecret()
	case formLost:
		return configuration.LockedSecret(at.String(), "", errLost)
	case formPlain:
		return content
	}

	return stored
}

// boxOf returns the box of a stored value, and the place where it opens; "" for a value
// without one.
func boxOf(at secret.Place, stored any) (secret.Place, secret.Box) {
	form, content := formOf(stored)
	box, _ := content.(string)

	switch form {
	case formSealed:
		return at, secret.Box(box)
	case formFormer:
		return formerPlace(at), secret.Box(box)
	}

	return nil, ""
}

// open decrypts a box into a document.
func (s *Secrets) open(at secret.Place, box secret.Box, document any) error {
	plain, err := s.ring.Load().Open(at, box)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, document)
}

// The places of secrets.

func placeHistory(scope state.Scope, seq uint64) secret.Place {
	return secret.Place{"vars-history", string(scope), strconv.FormatUint(seq, 10)}
}

// formerPlace returns the place of the variable whose change has a value at a place of
// the history; for other places one where nothing is.
func formerPlace(at secret.Place) secret.Place {
	if len(at) != 5 || at[0] != "vars-history" {
		return secret.Place{"none"}
	}
	return secret.Place(state.PlaceOf(state.Scope(at[1]))).With(at[4])
}

func placeInputs(job string) secret.Place { return secret.Place{"inputs", job} }

// sealChange returns a change of variables as it is stored.
func (s *Secrets) sealChange(scope state.Scope, c variable.Change) (variable.Change, error) {
	at := placeHistory(scope, c.Seq)

	var err error
	if c.Before, err = s.sealVars(at.With("before"), c.Before, true); err != nil {
		return c, err
	}

	c.After, err = s.sealVars(at.With("after"), c.After, true)

	return c, err
}

func (s *Secrets) openChange(scope state.Scope, c variable.Change) variable.Change {
	at := placeHistory(scope, c.Seq)
	c.Before, c.After = s.openVars(at.With("before"), c.Before), s.openVars(at.With("after"), c.After)
	return c
}

// sharedSecrets collects the secrets of a job, which many of its hosts share: each is
// stored once, all of them in one box.
type sharedSecrets struct {
	documents []document
	numbers   map[string]int
}

// add returns the stored form of a secret of the job.
func (c *sharedSecrets) add(d document) (any, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	number, known := c.numbers[string(text)]
	if !known {
		number = len(c.documents)
		c.numbers[string(text)] = number
		c.documents = append(c.documents, d)
	}

	return map[string]any{formShared: number}, nil
}

// sealInputs returns the inputs of a job as they are stored, and the box of their
// secrets, which is empty if they have none.
func (s *Secrets) sealInputs(id string, in job.Inputs) (job.Inputs, secret.Box, error) {
	shared := sharedSecrets{numbers: map[string]int{}}
	protects := (*s.patterns.Load())().Protector()

	stored, err := convertInputs(in, func(name string, value any) (any, error) {
		if form, done, err := storeUnknown(placeInputs(id).With(name), value, true); done || err != nil {
			return form, err
		}

		if !protects(name, value) {
			return storePlain(value), nil
		}

		d, err := newDocument(value)
		if err != nil {
			return nil, err
		}
		d.Name = name

		return shared.add(d)
	})
	if err != nil || len(shared.documents) == 0 {
		return stored, "", err
	}

	box, err := s.seal(placeInputs(id), "of the job", shared.documents)

	return stored, box, err
}

// openInputs returns the inputs of a job from their stored form.
func (s *Secrets) openInputs(id string, stored job.Inputs, box secret.Box) job.Inputs {
	var documents []document

	problem := errLost
	if box != "" {
		if err := s.open(placeInputs(id), box, &documents); err != nil {
			problem = err.Error()
		}
	}

	in, _ := convertInputs(stored, func(name string, value any) (any, error) {
		form, content := formOf(value)
		if form != formShared {
			return s.openValue(placeInputs(id).With(name), value), nil
		}
		number, ok := content.(int64)
		if !ok || number < 0 || number >= int64(len(documents)) || documents[number].Name != name {
			return configuration.LockedSecret(placeInputs(id).With(name).String(), "", problem), nil
		}
		return documents[number].value(), nil
	})

	return in
}

// convertInputs returns a copy of the inputs with each value converted.
func convertInputs(in job.Inputs, convert func(name string, value any) (any, error)) (job.Inputs, error) {
	var err error

	if in.Extra != nil {
		extra := make(configuration.Vars, len(in.Extra))
		for name, value := range in.Extra {
			if extra[name], err = convert(name, value); err != nil {
				return in, err
			}
		}

		in.Extra = extra
	}

	if in.Vars, err = convertHosts(in.Vars, convert); err != nil || in.CleanupVars == nil {
		return in, err
	}

	groups := make(map[string]map[string]map[string]configuration.Var, len(in.CleanupVars))
	for group, hosts := range in.CleanupVars {
		if groups[group], err = convertHosts(hosts, convert); err != nil {
			return in, err
		}
	}

	in.CleanupVars = groups

	return in, nil
}

// convertHosts returns a copy of the variables of the hosts with each value converted.
func convertHosts(
	in map[string]map[string]configuration.Var, convert func(name string, value any) (any, error),
) (map[string]map[string]configuration.Var, error) {
	if in == nil {
		return nil, nil
	}

	var err error

	hosts := make(map[string]map[string]configuration.Var, len(in))
	for host, vars := range in {
		converted := make(map[string]configuration.Var, len(vars))
		for name, v := range vars {
			if v.Value, err = convert(name, v.Value); err != nil {
				return in, err
			}

			converted[name] = v
		}

		hosts[host] = converted
	}

	return hosts, nil
}
