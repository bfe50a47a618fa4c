import { FormGroup } from '@patternfly/react-core';
import { CheckField, NumberField, SelectField } from '../../parts/fields.tsx';
import { useWords } from '../../texts/index.tsx';
import { isIncremental, KEPT_PERIODS } from './draft.ts';
import type { FieldsProps } from './editor.tsx';

/** Which backups stay. */
export function KeptFields({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.schedules;
  return (
    <>
      <NumberField
        id="schedule-keep-count"
        label={words.keepCount}
        help={words.zeroAll}
        value={draft.keep_count}
        error={fault('keep_count')}
        change={keep_count => set({ keep_count })}
      />
      <NumberField
        id="schedule-keep-days"
        label={words.keepDays}
        help={words.zeroAge}
        value={draft.limit_days}
        error={fault('limit_days')}
        change={limit_days => set({ limit_days })}
      />
      <FormGroup role="group" label={words.keepBy} fieldId="schedule-keep-by">
        <div className="vk-row">
          {KEPT_PERIODS.map(period => (
            <NumberField
              key={period}
              id={`schedule-keep-${period}`}
              label={words.keptPeriods[period]}
              value={draft.keep[period] ?? 0}
              error={fault(`keep.${period}`)}
              change={number => set(old => ({ keep: { ...old.keep, [period]: number } }))}
            />
          ))}
        </div>
      </FormGroup>
      <CheckField
        id="schedule-free-space"
        label={words.freeSpace}
        isOn={draft.free_space_cleanup}
        change={free_space_cleanup => set({ free_space_cleanup })}
      />
      {isIncremental(draft) && (
        <>
          <NumberField
            id="schedule-keep-states"
            label={words.keepStates}
            help={words.zeroAll}
            value={draft.keep_states}
            error={fault('keep_states')}
            change={keep_states => set({ keep_states })}
          />
          <SelectField
            id="schedule-keep-states-by"
            label={words.keepStatesBy}
            options={[
              ['trim', words.trim],
              ['new_archive', words.newArchive],
            ]}
            value={draft.keep_states_by}
            isDisabled={draft.keep_states === 0}
            error={fault('keep_states_by')}
            change={keep_states_by => set({ keep_states_by })}
          />
        </>
      )}
    </>
  );
}
