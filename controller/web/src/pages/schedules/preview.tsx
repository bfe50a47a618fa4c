/** What a scheduled task will do: its next runs, what they are about, and which backups go. */
import { Alert, Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { answer, api, list, type Schemas } from '../../api/client.ts';
import { Shown } from '../../parts/shown.tsx';
import { useSettled } from '../../parts/use-settled.ts';
import { useWords } from '../../texts/index.tsx';
import type { SettingsBody } from './draft.ts';

type Preview = Schemas['SchedulePreview'];
type Verdict = Schemas['RetentionVerdict'];

const TYPING_MS = 500;
const MOST = 200;
/** What is to be deleted must not be what is cut off. */
export const GOING_FIRST = 'action';
const MOST_TARGETS = 50;

/** Of settings that are being written. */
export function WouldDo({ body }: { body: SettingsBody }) {
  const { verbose_name: _name, ...settings } = useSettled(body, TYPING_MS);
  const query = useQuery({
    queryKey: ['preview', settings],
    queryFn: ({ signal }) => answer(api.POST('/api/scheduled-tasks/preview/', { body: settings, signal })),
    placeholderData: keepPreviousData,
    retry: false,
  });
  return <Shown query={query}>{preview => <PreviewTables preview={preview} most={5} />}</Shown>;
}

export function RetentionOfDraft({ id, body }: { id: string; body: SettingsBody }) {
  const settings = useSettled(body, TYPING_MS);
  const query = useQuery({
    queryKey: ['preview', 'retention', id, settings],
    queryFn: ({ signal }) =>
      list<Verdict>(
        api.POST('/api/scheduled-tasks/{id}/retention-preview/', {
          params: { path: { id }, query: { limit: MOST, ordering: GOING_FIRST } },
          body: settings,
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    retry: false,
  });
  return <Shown query={query}>{({ results, count }) => <Verdicts verdicts={results} count={count} />}</Shown>;
}

export function PreviewTables({ preview, most }: { preview: Preview; most?: number }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const runs = preview.runs.slice(0, most);
  return (
    <>
      <Warnings warnings={preview.warnings} />
      {runs.length === 0 ? (
        <p>{words.neverDue}</p>
      ) : (
        <Table aria-label={words.nextRuns} variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              <Th modifier="wrap">{words.due}</Th>
              <Th modifier="wrap">{words.mode}</Th>
              <Th modifier="wrap">{words.until}</Th>
            </Tr>
          </Thead>
          <Tbody>
            {runs.map(({ due_time, mode, window_end }) => (
              <Tr key={due_time}>
                <Td dataLabel={words.due}>
                  {format.time(due_time)} <span className="vk-small">{format.age(due_time)}</span>
                </Td>
                <Td dataLabel={words.mode}>{mode === null ? texts.none : words.modes[mode]}</Td>
                <Td dataLabel={words.until}>{window_end === null ? texts.none : format.time(window_end)}</Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      <Targets targets={preview.targets} />
    </>
  );
}

export function Warnings({ warnings }: { warnings: readonly string[] }) {
  const { texts } = useWords();
  if (warnings.length === 0) return null;
  return (
    <Alert isInline variant="warning" title={texts.schedules.warnings} className="vk-block">
      <ul>
        {warnings.map(warning => (
          <li key={warning}>{warning}</li>
        ))}
      </ul>
    </Alert>
  );
}

function Targets({ targets }: { targets: Preview['targets'] }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  if (targets.length === 0) return null;
  return (
    <details className="vk-block">
      <summary>{words.aboutNow(targets.length)}</summary>
      <Table aria-label={words.targets} variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            <Th modifier="wrap">{texts.common.name}</Th>
            <Th modifier="wrap">{words.estimate}</Th>
            <Th modifier="wrap">{words.byHand}</Th>
          </Tr>
        </Thead>
        <Tbody>
          {targets.slice(0, MOST_TARGETS).map(({ id, verbose_name, estimate, manual_states }) => (
            <Tr key={id}>
              <Td dataLabel={texts.common.name} className="vk-name">
                {verbose_name}
              </Td>
              <Td dataLabel={words.estimate}>{format.size(estimate)}</Td>
              <Td dataLabel={words.byHand} className="vk-name">
                {manual_states.join(', ') || texts.none}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {targets.length > MOST_TARGETS && <p className="vk-small">{texts.picker.more(targets.length)}</p>}
    </details>
  );
}

/** @param count of all, also those that were not asked for */
export function Verdicts({ verdicts, count }: { verdicts: readonly Verdict[]; count: number }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  if (verdicts.length === 0) return <p>{words.nothingGoes}</p>;
  return (
    <>
      {count > verdicts.length && <p>{words.someVerdicts(verdicts.length, count)}</p>}
      <Table aria-label={words.retention} variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            <Th modifier="wrap">{texts.restore.file}</Th>
            <Th modifier="wrap">{texts.files.machine}</Th>
            <Th modifier="wrap">{words.newestPoint}</Th>
            <Th modifier="wrap">{texts.common.size}</Th>
            <Th modifier="wrap">{words.verdict}</Th>
          </Tr>
        </Thead>
        <Tbody>
          {verdicts.map(({ file, filename, domain, newest, size, action, reason }) => (
            <Tr key={file}>
              <Td dataLabel={texts.restore.file} className="vk-name">
                {filename}
              </Td>
              <Td dataLabel={texts.files.machine} className="vk-name">
                <Link to={`/vms/${domain.id}/backups`}>{domain.verbose_name}</Link>
              </Td>
              <Td dataLabel={words.newestPoint}>{format.time(newest)}</Td>
              <Td dataLabel={texts.common.size}>{format.size(size)}</Td>
              <Td dataLabel={words.verdict}>
                <Label isCompact variant="outline" {...(action === 'delete' ? { status: 'danger' } : {})}>
                  {words.verdicts[action]}
                </Label>{' '}
                <span className="vk-small">{words.reasons[reason] ?? reason}</span>
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
    </>
  );
}
