import { FormSelectOption } from '@patternfly/react-core';
import { useAllPools } from '../../parts/all.ts';
import { CheckField, Checks, NumberField, SelectField, TextField } from '../../parts/fields.tsx';
import { PoolOptions } from '../../parts/pool-options.tsx';
import { useWords } from '../../texts/index.tsx';
import { FLAGS, isIncremental, type Kind, kindOf, WEEKDAYS, withKind } from './draft.ts';
import type { FieldsProps } from './editor.tsx';

/** Of what form its backups are; of a verification, what is verified. */
export function HowFields({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.schedules;
  if (draft.action === 'verify')
    return (
      <SelectField
        id="schedule-verify"
        label={words.verifyScope}
        options={[
          ['newest', words.verifyNewest],
          ['all', words.verifyAll],
        ]}
        value={draft.verify_scope}
        error={fault('verify_scope')}
        change={verify_scope => set({ verify_scope })}
      />
    );
  const kinds: [Kind, string][] = [
    ['increment', texts.backup.increment],
    ['full', texts.backup.full],
    ['incremental', texts.backup.incremental],
  ];
  return (
    <>
      <SelectField
        id="schedule-kind"
        label={texts.backup.kind}
        options={kinds}
        value={kindOf(draft)}
        change={kind => set(withKind(draft, kind))}
      />
      {isIncremental(draft) && <IncrementFields draft={draft} set={set} fault={fault} />}
      <PoolField draft={draft} set={set} fault={fault} />
      <OptionChecks draft={draft} set={set} fault={fault} />
      <TextField
        id="schedule-name-template"
        label={words.nameTemplate}
        help={words.nameTemplateHelp}
        maxLength={200}
        value={draft.name_template}
        error={fault('name_template')}
        change={name_template => set({ name_template })}
      />
    </>
  );
}

function IncrementFields({ draft, set, fault }: FieldsProps) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  return (
    <>
      <Checks
        id="schedule-full-on"
        label={words.fullOn}
        help={words.fullOnHelp}
        options={WEEKDAYS.map((day, index) => [day, format.weekday(index)] as const)}
        chosen={draft.full_weekdays}
        error={fault('full_weekdays')}
        change={full_weekdays => set({ full_weekdays })}
      />
      <NumberField
        id="schedule-increment-limit"
        label={words.incrementLimit}
        help={words.incrementLimitHelp}
        value={draft.increment_limit}
        error={fault('increment_limit')}
        change={increment_limit => set({ increment_limit })}
      />
      {draft.increment_limit > 0 && (
        <CheckField
          id="schedule-keep-manual"
          label={words.keepManual}
          isOn={draft.keep_manual_states}
          change={keep_manual_states => set({ keep_manual_states })}
        />
      )}
    </>
  );
}

function PoolField({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const pools = useAllPools();
  const { datapool: _datapool, ...others } = draft.options;
  return (
    <SelectField
      id="schedule-pool"
      label={texts.common.pool}
      options={[]}
      value={draft.options.datapool ?? ''}
      error={fault('options.datapool') ?? fault('datapool') ?? fault('options')}
      change={datapool => set({ options: datapool === '' ? others : { ...others, datapool } })}
    >
      <FormSelectOption value="" label={texts.schedules.basePool} />
      <PoolOptions pools={pools.data?.results} />
    </SelectField>
  );
}

function OptionChecks({ draft, set }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.backup;
  const labels = {
    compress: words.compress,
    hash_sum: words.hash,
    protected: words.protect,
    require_consistency: words.consistent,
    exclude_iso: words.noIso,
    hold_states: words.hold,
  };
  const offered = FLAGS.filter(flag => flag !== 'hold_states' || kindOf(draft) !== 'full');
  const chosen = offered.filter(flag => draft.options[flag] === true);
  return (
    <Checks
      id="schedule-options"
      label={words.options}
      options={offered.map(flag => [flag, labels[flag]] as const)}
      chosen={chosen}
      change={now => {
        const others = Object.fromEntries(
          Object.entries(draft.options).filter(([name]) => !FLAGS.some(flag => flag === name)),
        );
        set({ options: { ...others, ...Object.fromEntries(now.map(flag => [flag, true])) } });
      }}
    />
  );
}
