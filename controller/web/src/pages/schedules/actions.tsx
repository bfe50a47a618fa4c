/** What can be done with a scheduled task, wherever it is shown. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { AT_ONCE, answer, api, begun, keyFor, type Schedule } from '../../api/client.ts';
import type { Action } from '../../parts/actions.tsx';
import { Confirm } from '../../parts/confirm.tsx';
import { rightReason } from '../../parts/reasons.ts';
import { useToasts } from '../../parts/toasts.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';

/** The actions, and the dialog that one of them asks by. @param removed what is done once it is gone */
export function useScheduleActions(schedule: Schedule, removed: () => void = () => {}) {
  const { texts } = useWords();
  const words = texts.schedules;
  const asked = useAsked();
  const client = useQueryClient();
  const { attempt, started } = useToasts();
  const [asks, setAsks] = useState(false);
  const { id, enabled, verbose_name: name } = schedule;
  const path = { id };
  const reason = (action: string) =>
    schedule.permissions.includes(action)
      ? undefined
      : (rightReason('schedule.manage', asked) ?? texts.reasons.state);
  const run = async () =>
    started(
      await begun(
        api.POST('/api/scheduled-tasks/{id}/run/', {
          params: { path, query: AT_ONCE },
          body: { idempotency_key: keyFor(`/api/scheduled-tasks/${id}/run/`) },
        }),
      ),
    );
  const turn = () =>
    answer(
      enabled
        ? api.POST('/api/scheduled-tasks/{id}/disable/', { params: { path }, body: {} })
        : api.POST('/api/scheduled-tasks/{id}/enable/', { params: { path }, body: {} }),
    );
  const copy = async () => {
    await answer(
      api.POST('/api/scheduled-tasks/{id}/copy/', {
        params: { path },
        body: { idempotency_key: keyFor(`/api/scheduled-tasks/${id}/copy/`) },
      }),
    );
    await client.invalidateQueries({ queryKey: ['schedules'] });
  };
  const remove = async () => {
    await answer(api.POST('/api/scheduled-tasks/{id}/remove/', { params: { path }, body: {} }));
    removed();
    await client.invalidateQueries({ queryKey: ['schedules'] });
  };
  const other = enabled ? 'disable' : 'enable';
  const actions: Action[] = [
    { key: 'run', label: words.run, reason: reason('run'), act: () => attempt(run) },
    { key: 'update', label: words.change, reason: reason('update'), to: `/schedules/${id}/edit` },
    { key: other, label: words[other], reason: reason(other), act: () => attempt(turn) },
    { key: 'copy', label: words.copy, reason: reason('copy'), act: () => attempt(copy) },
    {
      key: 'remove',
      label: words.remove,
      reason: reason('remove'),
      act: () => setAsks(true),
      isDanger: true,
    },
  ];
  const dialog = asks && (
    <Confirm
      title={words.removeTitle(name)}
      text={words.removeText}
      submit={words.remove}
      name={name}
      act={remove}
      close={() => setAsks(false)}
    />
  );
  return { actions, dialog };
}
