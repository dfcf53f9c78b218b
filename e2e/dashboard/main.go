// Checks the dashboard for Grafana: every field is one that Grafana's schema has, and every query is PromQL.
//
// Its types are generated from the schema that Grafana publishes for dashboards, panels and queries.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("name the file with the dashboard"))
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	panels, queries, err := check(text)
	if err != nil {
		fail(fmt.Errorf("%s: %w", os.Args[1], err))
	}
	fmt.Printf("%s: %d panels, %d queries\n", os.Args[1], panels, queries)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "dashboard:", err)
	os.Exit(1)
}

// check tells how many panels and queries a dashboard has, or all that is wrong with it.
func check(text []byte) (int, int, error) {
	plugins.RegisterDefaultPlugins()
	var strict, board dashboard.Dashboard
	if err := faults(strict.UnmarshalJSONStrict(text)); err != nil {
		return 0, 0, err
	}
	// The strict one leaves out panels.
	if err := json.Unmarshal(text, &board); err != nil {
		return 0, 0, err
	}
	wrong := []error{board.Validate()}
	variables := board.Templating.List
	for _, one := range variables {
		if one.Type == dashboard.VariableTypeQuery {
			wrong = append(wrong, named(one.Name, parseVariable(one, variables)))
		}
	}
	panels, queries := 0, 0
	ids := map[uint32]string{}
	for _, one := range board.Panels {
		panel := one.Panel
		if panel == nil || panel.Title == nil || panel.Id == nil {
			wrong = append(wrong, errors.New("a panel has no title, no id, or is a row"))
			continue
		}
		panels++
		if other, taken := ids[*panel.Id]; taken {
			wrong = append(wrong, fmt.Errorf("the panels %q and %q have the same id", other, *panel.Title))
		}
		ids[*panel.Id] = *panel.Title
		if _, known := cog.ConfigForPanelcfgVariant(panel.Type); !known {
			wrong = append(wrong, fmt.Errorf("%q: Grafana has no panel %q", *panel.Title, panel.Type))
		}
	}
	targets, err := targets(text)
	wrong = append(wrong, err)
	for _, target := range targets {
		queries++
		var query prometheus.Dataquery
		if err := faults(query.UnmarshalJSONStrict(target)); err != nil {
			wrong = append(wrong, named(string(target), err))
			continue
		}
		wrong = append(wrong, named(query.Expr, parse(query.Expr, variables)))
	}
	return panels, queries, errors.Join(wrong...)
}

// faults is nil for the list of no faults that a strict reader may return.
func faults(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// targets are the queries of all panels. A strict reader of a panel takes its queries for those of an unknown data source.
func targets(text []byte) ([]json.RawMessage, error) {
	var board struct {
		Panels []struct{ Targets []json.RawMessage }
	}
	err := json.Unmarshal(text, &board)
	var targets []json.RawMessage
	for _, panel := range board.Panels {
		targets = append(targets, panel.Targets...)
	}
	return targets, err
}

var variable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// parse takes the dashboard's variables for what Grafana puts in their place: a regular expression.
func parse(query string, variables []dashboard.VariableModel) error {
	for _, found := range variable.FindAllStringSubmatch(query, -1) {
		known := strings.HasPrefix(found[1], "__")
		for _, one := range variables {
			known = known || one.Name == found[1]
		}
		if !known {
			return fmt.Errorf("the dashboard has no variable %s", found[0])
		}
	}
	_, err := parser.NewParser(parser.Options{}).ParseExpr(variable.ReplaceAllString(query, ".*"))
	return err
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// parseVariable checks what a variable asks for: Grafana's label_values(SELECTOR, LABEL).
func parseVariable(one dashboard.VariableModel, variables []dashboard.VariableModel) error {
	if one.Query == nil || one.Query.String == nil {
		return errors.New("the variable has no query")
	}
	parts := labelValues.FindStringSubmatch(*one.Query.String)
	if parts == nil {
		return fmt.Errorf("%q is not label_values(SELECTOR, LABEL)", *one.Query.String)
	}
	return parse(parts[1], variables)
}
