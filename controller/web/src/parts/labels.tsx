/** States, told by an icon and a word: colour alone tells nothing to many. */
import { Label, type LabelProps } from '@patternfly/react-core';
import type { ProtectionState } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';

type Tone = NonNullable<LabelProps['status']>;

const PROTECTION: Record<ProtectionState, Tone | undefined> = {
  protected: 'success',
  late: 'danger',
  never: 'danger',
  failing: 'warning',
  excluded: undefined,
};

const STATUS: Readonly<Record<string, Tone>> = {
  ACTIVE: 'success',
  SUCCESS: 'success',
  FAILED: 'danger',
  DAMAGED: 'danger',
  MISSING: 'danger',
  AWAY: 'danger',
  LOST: 'warning',
  PARTIAL: 'warning',
  MISSED: 'warning',
  SERVICE: 'warning',
  IN_PROGRESS: 'info',
  RUNNING: 'info',
};

export function ProtectionLabel({ state }: { state: ProtectionState }) {
  const { texts } = useWords();
  return <Tag tone={PROTECTION[state]}>{texts.protection[state]}</Tag>;
}

/** Of a task, file, node, pool or run. */
export function StatusLabel({ status }: { status: string }) {
  const { texts } = useWords();
  return <Tag tone={STATUS[status]}>{texts.status[status] ?? status}</Tag>;
}

export function PowerLabel({ state }: { state: number }) {
  const { texts } = useWords();
  return <Tag tone={state === 3 ? 'success' : undefined}>{texts.power[state] ?? texts.power[0]}</Tag>;
}

function Tag({ tone, children }: { tone: Tone | undefined; children: string | undefined }) {
  return (
    <Label isCompact variant="outline" className="vk-state" {...(tone === undefined ? {} : { status: tone })}>
      {children}
    </Label>
  );
}
