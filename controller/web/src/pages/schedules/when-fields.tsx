import { FormSelectOption } from '@patternfly/react-core';
import { useMemo } from 'react';
import { Checks, NumberField, SelectField, TextField } from '../../parts/fields.tsx';
import { useWords } from '../../texts/index.tsx';
import { timeZones } from '../../zone.ts';
import { PERIODS, WEEKDAYS, WEEKS } from './draft.ts';
import type { FieldsProps } from './editor.tsx';

/** How often, and when. */
export function WhenFields({ draft, set, fault }: FieldsProps) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const { periodicity } = draft;
  // hundreds of them, which nothing that is typed elsewhere changes
  const zones = useMemo(
    () => timeZones(draft.time_zone).map(zone => <FormSelectOption key={zone} value={zone} label={zone} />),
    [draft.time_zone],
  );
  const days = WEEKDAYS.map((day, index) => [day, format.weekday(index)] as const);
  return (
    <>
      <SelectField
        id="schedule-period"
        label={words.periodicity}
        options={PERIODS.map(period => [period, words.periods[period] ?? period] as const)}
        value={periodicity}
        error={fault('periodicity')}
        change={chosen => set({ periodicity: chosen })}
      />
      {periodicity === 'hourly' && (
        <NumberField
          id="schedule-every"
          label={words.every}
          min={1}
          max={8760}
          value={draft.every}
          error={fault('every')}
          change={every => set({ every })}
        />
      )}
      {periodicity === 'weekly' && (
        <Checks
          id="schedule-weekdays"
          label={words.weekdays}
          help={words.weekdaysHelp}
          options={days}
          chosen={draft.weekdays}
          error={fault('weekdays')}
          change={weekdays => set({ weekdays })}
        />
      )}
      {periodicity === 'monthly' && <MonthFields draft={draft} set={set} fault={fault} />}
      {periodicity === 'cron' && (
        <TextField
          id="schedule-cron"
          label={words.cron}
          help={words.cronHelp}
          isRequired
          maxLength={200}
          value={draft.cron}
          error={fault('cron')}
          change={cron => set({ cron })}
        />
      )}
      <TextField
        id="schedule-date"
        type="date"
        label={periodicity === 'once' ? words.onDate : words.fromDate}
        value={draft.date}
        error={fault('date') ?? fault('start_date')}
        change={date => set({ date })}
      />
      {periodicity !== 'cron' && (
        <TextField
          id="schedule-time"
          type="time"
          label={words.atTime}
          value={draft.time}
          error={fault('time')}
          change={time => set({ time })}
        />
      )}
      <SelectField
        id="schedule-zone"
        label={words.zone}
        options={[]}
        value={draft.time_zone}
        error={fault('time_zone')}
        change={time_zone => set({ time_zone })}
      >
        {zones}
      </SelectField>
      <SelectField
        id="schedule-missed"
        label={words.missed}
        options={[
          ['run_once', words.missedOnce],
          ['skip', words.missedSkip],
        ]}
        value={draft.missed_run}
        error={fault('missed_run')}
        change={missed_run => set({ missed_run })}
      />
    </>
  );
}

const LAST_DAY = 31;

function MonthFields({ draft, set, fault }: FieldsProps) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const isByWeek = draft.month_day === 0;
  return (
    <>
      <SelectField
        id="schedule-month-by"
        label={words.monthBy}
        options={[
          ['day', words.byDay],
          ['week', words.byWeek],
        ]}
        value={isByWeek ? 'week' : 'day'}
        change={by =>
          set(by === 'day' ? { month_day: 1, weekdays: [] } : { month_day: 0, weekdays: ['sun'] })
        }
      />
      {isByWeek ? (
        <>
          <SelectField
            id="schedule-week"
            label={words.week}
            options={WEEKS.map(week => [week, words.weeks[week]] as const)}
            value={draft.week}
            error={fault('week')}
            change={week => set({ week })}
          />
          <SelectField
            id="schedule-weekday"
            label={words.weekday}
            options={WEEKDAYS.map((day, index) => [day, format.weekday(index)] as const)}
            value={draft.weekdays[0] ?? 'sun'}
            error={fault('weekdays')}
            change={day => set({ weekdays: [day] })}
          />
        </>
      ) : (
        <NumberField
          id="schedule-day"
          label={words.day}
          help={words.dayHelp}
          min={1}
          max={LAST_DAY}
          value={draft.month_day}
          error={fault('month_day')}
          // it may be by weeks by now
          change={month_day => set(old => (old.month_day === 0 ? {} : { month_day }))}
        />
      )}
    </>
  );
}
