package catalogue

import (
	"bytes"
	_ "embed" // for the default catalogue
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed catalogue.yaml
var defaultYAML []byte

// Default returns the embedded catalogue.
var Default = sync.OnceValues(func() (*Catalogue, error) {
	return Parse("embedded catalogue", defaultYAML)
})

// Load reads the catalogue in file path; the empty path means the embedded one. Its errors name the
// file, the entry, the field, the value and what would be right.
func Load(path string) (*Catalogue, error) {
	if path == "" {
		return Default()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading catalogue: %w", err)
	}
	return Parse(path, data)
}

// file is the outer form of a catalogue. Entries are decoded one by one, so that an error can name
// the entry that it is in.
type file struct {
	Sources       map[string]string `json:"sources"`
	Zones         []string          `json:"zones"`
	InstanceTypes []json.RawMessage `json:"instanceTypes"`
}

// Parse reads a catalogue from YAML. origin is the name of the data in errors. Unknown fields and
// duplicate keys are refused.
func Parse(origin string, data []byte) (*Catalogue, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("reading catalogue %s: %w", origin, err)
	}
	outer := file{}
	if err := decodeStrict(asJSON, &outer); err != nil {
		return nil, fmt.Errorf("reading catalogue %s: %w; its fields are sources, zones and instanceTypes", origin, err)
	}
	c := &Catalogue{Sources: outer.Sources, Zones: outer.Zones, byName: map[string]*InstanceType{}}
	for i, raw := range outer.InstanceTypes {
		it := &InstanceType{}
		if err := decodeStrict(raw, it); err != nil {
			return nil, fmt.Errorf("reading catalogue %s: %s: %w; its fields are those of docs/simulated-cloud.md", origin, place(i, nameOf(raw)), err)
		}
		if len(it.Zones) == 0 {
			it.Zones = outer.Zones
		}
		c.InstanceTypes = append(c.InstanceTypes, it)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("checking catalogue %s: %w", origin, err)
	}
	for _, it := range c.InstanceTypes {
		c.byName[it.Name] = it
	}
	return c, nil
}

func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// nameOf finds the name in an entry that may not decode otherwise.
func nameOf(raw json.RawMessage) string {
	named := struct {
		Name string `json:"name"`
	}{}
	if err := json.Unmarshal(raw, &named); err != nil {
		return ""
	}
	return named.Name
}

func place(i int, name string) string {
	if name == "" {
		return fmt.Sprintf("instanceTypes[%d]", i)
	}
	return fmt.Sprintf("instanceTypes[%d] %q", i, name)
}
