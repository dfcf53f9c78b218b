package main

import (
	"os"
	"strings"
	"testing"
)

func read(t *testing.T) string {
	text, err := os.ReadFile("../../charts/lockkeeper/dashboards/lockkeeper.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDashboardOfTheChartIsOneThatGrafanaKnows(t *testing.T) {
	panels, queries, err := check([]byte(read(t)))
	if err != nil || panels < 10 || queries < panels {
		t.Fatalf("%d panels, %d queries, %v", panels, queries, err)
	}
}

func TestWhatGrafanaWouldIgnoreOrRefuseIsFound(t *testing.T) {
	board := read(t)
	for _, fault := range []struct{ before, after, told string }{
		{`"refresh":`, `"refersh":`, "refersh"},
		{`"gridPos":`, `"gridpos":`, "gridpos"},
		{`"mergeValues":`, `"mergeValue":`, "mergeValue"},
		{`"lineWidth":`, `"linewidth":`, "linewidth"},
		{`"legendFormat":`, `"legend":`, "legend"},
		{`"state-timeline"`, `"state-time"`, "state-time"},
		{`"expr": "max(`, `"expr": "max((`, "parse error"},
		{`namespace=~\"$namespace\"}, lock`, `namespace=~\"$space\"}, lock`, "$space"},
		{`,lock=~\"$lock\"`, `,lock=~\"$look\"`, "$look"},
		{`"id": 2,`, `"id": 1,`, "the same id"},
	} {
		broken := strings.Replace(board, fault.before, fault.after, 1)
		if broken == board {
			t.Errorf("the dashboard has no %s", fault.before)
		}
		_, _, err := check([]byte(broken))
		if err == nil || !strings.Contains(err.Error(), fault.told) {
			t.Errorf("%s: %v", fault.after, err)
		}
	}
}
