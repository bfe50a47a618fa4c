/** What is to be done on a controller that is new, step by step; nothing once all of it is done. */

import { Card, CardBody, CardTitle, Label } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, list, type Overview } from '../api/client.ts';
import { useAllNodes } from '../parts/all.ts';
import { useWords } from '../texts/index.tsx';

interface Step {
  key: 'enrol' | 'pool' | 'backup' | 'schedule';
  isDone: boolean;
  /** Where it is done. */
  to: string;
}

/** How many there are, of a list. */
function useCount(key: string, ask: () => Promise<{ count: number }>) {
  return useQuery({ queryKey: [key, 'count'], queryFn: ask }).data?.count;
}

export function FirstSteps({ overview }: { overview: Overview }) {
  const { texts } = useWords();
  const words = texts.firstSteps;
  const one = { params: { query: { limit: 1 } } };
  const files = useCount('files', () => list(api.GET('/api/library/', one)));
  const schedules = useCount('schedules', () => list(api.GET('/api/scheduled-tasks/', one)));
  const nodes = useAllNodes().data?.results;
  if (files === undefined || schedules === undefined || nodes === undefined) return null;
  const machine = overview.history.domains[0]?.domain.id;
  const steps: Step[] = [
    { key: 'enrol', isDone: nodes.length > 0, to: '/nodes?enrol=1' },
    {
      key: 'pool',
      isDone: nodes.some(({ base_datapool }) => base_datapool !== null),
      to: `/nodes?edit=${nodes[0]?.id ?? ''}`,
    },
    { key: 'backup', isDone: files > 0, to: machine === undefined ? '/vms' : `/backup?vm=${machine}` },
    { key: 'schedule', isDone: schedules > 0, to: '/schedules/new' },
  ];
  // a pool can be named each time
  const isNew = steps.some(({ key, isDone }) => !isDone && key !== 'pool');
  if (!isNew) return null;
  const next = steps.find(({ isDone }) => !isDone);
  return (
    <Card className="vk-wide">
      <CardTitle component="h2">{words.title}</CardTitle>
      <CardBody>
        <ol className="vk-list">
          {steps.map(step => (
            <li key={step.key} aria-current={step === next ? 'step' : undefined}>
              <span className="vk-row">
                <Label isCompact variant="outline" {...(step.isDone ? { status: 'success' as const } : {})}>
                  {step.isDone ? words.done : words.open}
                </Label>
                {step.isDone || nodes.length === 0 ? (
                  step === next ? (
                    <Link to={step.to}>{words.steps[step.key]}</Link>
                  ) : (
                    words.steps[step.key]
                  )
                ) : (
                  <Link to={step.to}>{words.steps[step.key]}</Link>
                )}
              </span>
              {step === next && <div className="vk-small">{words.texts[step.key]}</div>}
            </li>
          ))}
        </ol>
      </CardBody>
    </Card>
  );
}
