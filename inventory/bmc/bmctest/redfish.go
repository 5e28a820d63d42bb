// SPDX-License-Identifier: Apache-2.0

package bmctest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
)

// Redfish is a BMC that speaks Redfish: a service root, sessions, and systems with the reset action, the override of
// the boot source, and their hardware.
type Redfish struct {
	BMC machine.BMC // how it is reached: with TLS, and for the only system

	mu        sync.Mutex
	systems   []*Machine
	logins    int
	sessions  map[string]string // tokens by the path of the session
	most      int               // that were open at once
	next      int
	answer    http.HandlerFunc // in the place of all others; nil: none
	revision  map[*Machine]int // of the ETag
	password  string
	resources map[string]object // of the hardware, by path
	forgets   bool              // says that it has taken a new password, and keeps the one that it has
}

// NewRedfish starts a BMC with a number of systems, named 1, 2, and so on. Their machines are off.
func NewRedfish(t TB, systems int) *Redfish {
	t.Helper()

	r := &Redfish{
		sessions: map[string]string{}, revision: map[*Machine]int{}, password: Password, resources: map[string]object{},
	}
	for i := range systems {
		r.systems = append(r.systems, &Machine{})
		r.equip(i + 1)
	}

	s := httptest.NewTLSServer(r)
	t.Cleanup(s.Close)

	addr, _ := s.Listener.Addr().(*net.TCPAddr)
	r.BMC = machine.BMC{
		Driver: machine.Redfish, Address: "127.0.0.1", Port: addr.Port, User: User, Password: Password,
	}

	return r
}

// System returns the machine of a system, from 1.
func (r *Redfish) System(n int) *Machine { return r.systems[n-1] }

// Logins returns how many logins were tried.
func (r *Redfish) Logins() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logins
}

// Sessions returns how many sessions are open.
func (r *Redfish) Sessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}

// MostSessions returns how many sessions were open at once.
func (r *Redfish) MostSessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// Answer has f answer all requests; nil: the BMC itself.
func (r *Redfish) Answer(f http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// Accepts reports whether the user has the password.
func (r *Redfish) Accepts(password string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.password == password
}

// Forget has the BMC say that it takes a new password, and keep the one that it has.
func (r *Redfish) Forget(passwords bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgets = passwords
}

// object is a resource.
type object = map[string]any

// The paths.
const (
	rootPath     = "/redfish/v1/"
	servicePath  = rootPath + "SessionService"
	sessionsPath = servicePath + "/Sessions"
	systemsPath  = rootPath + "Systems"
	accountsPath = rootPath + "AccountService/Accounts"
	accountPath  = accountsPath + "/2"
	resetPath    = "/Actions/ComputerSystem.Reset"
)

// bodyLimit bounds the body of a request, in bytes.
const bodyLimit = 1 << 20

// ServeHTTP answers a request.
func (r *Redfish) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()

	if answer != nil {
		answer(w, q)
		return
	}

	r.Serve(w, q)
}

// Serve answers a request as the BMC itself.
func (r *Redfish) Serve(w http.ResponseWriter, q *http.Request) {
	q.Body = http.MaxBytesReader(w, q.Body, bodyLimit)

	open := http.NewServeMux()
	open.HandleFunc("GET /redfish", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, object{"v1": rootPath})
	})
	open.HandleFunc("GET /redfish/v1", r.root)
	open.HandleFunc("GET /redfish/v1/{$}", r.root)
	open.HandleFunc("POST "+sessionsPath, r.login)

	closed := http.NewServeMux()
	closed.HandleFunc("GET "+servicePath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, object{
			"@odata.id": servicePath, "@odata.type": "#SessionService.v1_1_8.SessionService",
			"Id": "SessionService", "Name": "Sessions", "ServiceEnabled": true, "SessionTimeout": 300,
			"Sessions": link(sessionsPath),
		})
	})
	closed.HandleFunc("GET "+sessionsPath, func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()

		var paths []string
		for path := range r.sessions {
			paths = append(paths, path)
		}
		reply(w, http.StatusOK, collection(sessionsPath, "#SessionCollection.SessionCollection", paths))
	})
	closed.HandleFunc("DELETE "+sessionsPath+"/{id}", func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sessions, q.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	})
	closed.HandleFunc("GET "+rootPath+"AccountService", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, object{
			"@odata.id": rootPath + "AccountService", "@odata.type": "#AccountService.v1_15_0.AccountService",
			"Id": "AccountService", "Name": "Accounts", "ServiceEnabled": true, "Accounts": link(accountsPath),
		})
	})
	closed.HandleFunc("GET "+accountsPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, collection(accountsPath, "#ManagerAccountCollection.ManagerAccountCollection",
			[]string{accountPath}))
	})
	closed.HandleFunc("GET "+accountPath, r.account)
	closed.HandleFunc("PATCH "+accountPath, r.setPassword)
	closed.HandleFunc("GET "+systemsPath, func(w http.ResponseWriter, _ *http.Request) {
		var paths []string
		for i := range r.systems {
			paths = append(paths, systemPath(i+1))
		}
		reply(w, http.StatusOK, collection(systemsPath, "#ComputerSystemCollection.ComputerSystemCollection", paths))
	})
	closed.HandleFunc("GET "+systemsPath+"/{id}", r.system(r.get))
	closed.HandleFunc("PATCH "+systemsPath+"/{id}", r.system(r.patch))
	closed.HandleFunc("POST "+systemsPath+"/{id}"+resetPath, r.system(r.reset))
	closed.HandleFunc("/", r.resource)

	if _, pattern := open.Handler(q); pattern != "" {
		open.ServeHTTP(w, q)
		return
	}

	if !r.known(q) {
		refuse(w, http.StatusUnauthorized, "NoValidSession", "There is no valid session established.")
		return
	}
	closed.ServeHTTP(w, q)
}

// known reports whether the request has a token, or the user and the password.
func (r *Redfish) known(q *http.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	if user, password, ok := q.BasicAuth(); ok {
		r.logins++
		return user == User && password == r.password
	}

	for _, token := range r.sessions {
		if q.Header.Get("X-Auth-Token") == token {
			return true
		}
	}

	return false
}

func (r *Redfish) root(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, object{
		"@odata.id": rootPath, "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
		"Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.15.0",
		"UUID":           "92384634-2938-2342-8820-489239905423",
		"Systems":        link(systemsPath),
		"Chassis":        link(chassisPath),
		"Managers":       link(managersPath),
		"SessionService": link(servicePath),
		"AccountService": link(rootPath + "AccountService"),
		"Links":          object{"Sessions": link(sessionsPath)},
	})
}

func (r *Redfish) login(w http.ResponseWriter, q *http.Request) {
	var body struct{ UserName, Password string }
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body could not be parsed.")
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.logins++
	if body.UserName != User || body.Password != r.password {
		refuse(w, http.StatusUnauthorized, "InsufficientPrivilege", "The user name or the password is wrong.")
		return
	}

	r.next++
	path, token := sessionsPath+"/"+strconv.Itoa(r.next), fmt.Sprintf("token-%d", r.next)
	r.sessions[path] = token
	r.most = max(r.most, len(r.sessions))
	w.Header().Set("Location", path)
	w.Header().Set("X-Auth-Token", token)
	reply(w, http.StatusCreated, object{
		"@odata.id": path, "@odata.type": "#Session.v1_5_0.Session",
		"Id": strconv.Itoa(r.next), "Name": "Session", "UserName": User,
	})
}

func (r *Redfish) account(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, object{
		"@odata.id": accountPath, "@odata.type": "#ManagerAccount.v1_12_0.ManagerAccount",
		"Id": "2", "Name": "Account", "UserName": User, "RoleId": "Administrator", "Enabled": true, "Locked": false,
		"Password": nil, "AccountTypes": []string{"Redfish"},
	})
}

func (r *Redfish) setPassword(w http.ResponseWriter, q *http.Request) {
	var body struct{ Password string }
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil || body.Password == "" {
		refuse(w, http.StatusBadRequest, "PropertyValueFormatError", "The password is none.")
		return
	}

	r.mu.Lock()
	if !r.forgets {
		r.password = body.Password
	}
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// system returns a handler that calls f with the system.
func (r *Redfish) system(f func(http.ResponseWriter, *http.Request, int)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		n, err := strconv.Atoi(q.PathValue("id"))
		if err != nil || n < 1 || n > len(r.systems) {
			refuse(w, http.StatusNotFound, "ResourceNotFound", "The system was not found.")
			return
		}

		f(w, q, n)
	}
}

// The values of Redfish for the devices and the modes.
var (
	sources = map[bmc.Device]string{
		"": "None", bmc.Default: "None", bmc.PXE: "Pxe", bmc.Disk: "Hdd", bmc.CDROM: "Cd", bmc.Setup: "BiosSetup",
	}
	modes = map[bmc.Mode]string{bmc.BIOS: "Legacy", bmc.UEFI: "UEFI", "": "UEFI"}
)

// etag returns the ETag of a system.
func (r *Redfish) etag(m *Machine) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf(`"%d"`, r.revision[m])
}

func (r *Redfish) get(w http.ResponseWriter, _ *http.Request, n int) {
	m := r.System(n)
	b, path := m.Boot(), systemPath(n)

	state, enabled := "Off", "Once"
	if m.power() {
		state = "On"
	}

	switch {
	case sources[b.Device] == "None":
		enabled = "Disabled"
	case b.Lasting:
		enabled = "Continuous"
	}

	w.Header().Set("ETag", r.etag(m))

	system := object{
		"@odata.id": path, "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "@odata.etag": r.etag(m),
		"Id": strconv.Itoa(n), "Name": "System", "SystemType": "Physical", "PowerState": state,
		"UUID":         fmt.Sprintf("00000000-0000-0000-0000-%012d", n),
		"Manufacturer": "Contoso", "Model": "3500", "SerialNumber": strconv.Itoa(n),
		"Status": object{"State": "Enabled", "Health": "OK"},
		"Boot": object{
			"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": sources[b.Device],
			"BootSourceOverrideMode":                           modes[b.Mode],
			"BootSourceOverrideTarget@Redfish.AllowableValues": []string{"None", "Pxe", "Hdd", "Cd", "BiosSetup"},
		},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": path + resetPath,
			"ResetType@Redfish.AllowableValues": []string{
				"On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle",
			},
		}},
	}
	maps.Copy(system, hardwareLinks(n))

	r.mu.Lock()
	maps.Copy(system, r.resources[path])
	r.mu.Unlock()

	reply(w, http.StatusOK, system)
}

func (r *Redfish) reset(w http.ResponseWriter, q *http.Request, n int) {
	var body struct{ ResetType string }
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body could not be parsed.")
		return
	}

	if !r.System(n).do(body.ResetType) {
		refuse(w, http.StatusConflict, "ResourceInStandby", "The system cannot do that in its present state.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *Redfish) patch(w http.ResponseWriter, q *http.Request, n int) {
	m := r.System(n)

	// A service may demand that a change names what it changes.
	switch q.Header.Get("If-Match") {
	case r.etag(m), "*":
	case "":
		refuse(w, http.StatusPreconditionRequired, "PreconditionRequired", "The request needs an If-Match header.")
		return
	default:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "The ETag does not match.")
		return
	}

	var body struct {
		Boot struct{ BootSourceOverrideTarget, BootSourceOverrideEnabled, BootSourceOverrideMode string }
	}
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedJSON", "The request body could not be parsed.")
		return
	}
	b := m.Boot()
	b.Lasting = body.Boot.BootSourceOverrideEnabled == "Continuous"

	for mode, name := range modes {
		if name == body.Boot.BootSourceOverrideMode && mode != "" {
			b.Mode = mode
		}
	}

	known := false
	for device, name := range sources {
		if device != "" && name == body.Boot.BootSourceOverrideTarget {
			b.Device, known = device, true
		}
	}

	if !known {
		refuse(w, http.StatusBadRequest, "PropertyValueNotInList", "The boot source is not in the list.")
		return
	}
	m.setBoot(b)

	r.mu.Lock()
	r.revision[m]++
	r.mu.Unlock()

	r.get(w, q, n)
}

func systemPath(n int) string { return systemsPath + "/" + strconv.Itoa(n) }

func link(path string) object { return object{"@odata.id": path} }

func collection(path, kind string, paths []string) object {
	members := make([]object, 0, len(paths))
	for _, p := range paths {
		members = append(members, link(p))
	}

	return object{
		"@odata.id": path, "@odata.type": kind, "Name": "Collection",
		"Members": members, "Members@odata.count": len(members),
	}
}

// reply writes a resource.
func reply(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(o) //nolint:errcheck // the client is gone
}

// refuse writes an error.
func refuse(w http.ResponseWriter, code int, id, text string) {
	reply(w, code, object{"error": object{
		"code": "Base.1.13." + id, "message": text,
		"@Message.ExtendedInfo": []object{{
			"@odata.type": "#Message.v1_1_2.Message", "MessageId": "Base.1.13." + id, "Message": text,
			"Severity": "Critical", "Resolution": "None.",
		}},
	}})
}
