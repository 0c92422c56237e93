package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// refresh is how often the live view redraws.
const refresh = 250 * time.Millisecond

// Model is the live view as bubbletea runs it.
type Model struct {
	source        func() Frame
	stop          func()
	frame         Frame
	width, height int
	stopping      bool
}

// NewModel makes a view of a source. stop is called once when the user asks to end.
func NewModel(source func() Frame, stop func()) Model {
	return Model{source: source, stop: stop, frame: source(), width: 100, height: 40}
}

type tick struct{}

func next() tea.Cmd {
	return tea.Tick(refresh, func(time.Time) tea.Msg { return tick{} })
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return next() }

// Update implements tea.Model.
func (m Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyMsg:
		if s := msg.String(); (s == "ctrl+c" || s == "q") && !m.stopping {
			m.stopping = true
			m.stop()
		}
	case tick:
		m.frame = m.source()
		return m, next()
	}
	return m, nil
}

// View implements tea.Model.
func (m Model) View() string {
	f := m.frame
	if m.stopping && f.Notice == "" {
		f.Notice = "Stopping: everything that was started is being taken down ..."
	}
	return Render(f, m.width, m.height)
}

// Live shows frames on the alternate screen until the context ends; the terminal is then as it was before. Keys q and ctrl+c
// call stop.
func Live(ctx context.Context, in io.Reader, out io.Writer, source func() Frame, stop func()) error {
	program := tea.NewProgram(NewModel(source, stop),
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler())
	_, err := program.Run()
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) {
		return fmt.Errorf("showing live view: %w", err)
	}
	return nil
}
