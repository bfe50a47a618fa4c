import { NumberField, SelectField, TextField } from '../../parts/fields.tsx';
import { useWords } from '../../texts/index.tsx';
import type { FieldsProps } from './editor.tsx';

const MiB = 1024 * 1024;

/** How much at a time, until when, and what becomes of failures. */
export function LimitFields({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.schedules;
  return (
    <>
      <NumberField
        id="schedule-parallel"
        label={words.parallel}
        help={words.zeroAtOnce}
        value={draft.parallel_limit}
        error={fault('parallel_limit')}
        change={parallel_limit => set({ parallel_limit })}
      />
      <TextField
        id="schedule-window"
        type="time"
        label={words.windowEnd}
        help={words.windowHelp}
        value={draft.window_end}
        error={fault('window_end')}
        change={window_end => set({ window_end })}
      />
      {draft.window_end !== '' && (
        <SelectField
          id="schedule-window-action"
          label={words.windowAction}
          options={[
            ['continue', words.goesOn],
            ['cancel', words.isCancelled],
          ]}
          value={draft.window_action}
          error={fault('window_action')}
          change={window_action => set({ window_action })}
        />
      )}
      {draft.action === 'backup' && (
        <NumberField
          id="schedule-bandwidth"
          label={words.bandwidth}
          help={words.zeroNone}
          unit={MiB}
          value={draft.bandwidth}
          error={fault('bandwidth')}
          change={bandwidth => set({ bandwidth })}
        />
      )}
      <NumberField
        id="schedule-retries"
        label={words.retries}
        max={20}
        value={draft.retries}
        error={fault('retries')}
        change={retries => set({ retries })}
      />
      {draft.retries > 0 && (
        <NumberField
          id="schedule-retry-delay"
          label={words.retryDelay}
          min={1}
          value={draft.retry_delay_s}
          error={fault('retry_delay_s')}
          change={retry_delay_s => set({ retry_delay_s })}
        />
      )}
    </>
  );
}
