/** Choosing some of many by looking for their names. */
import { Button, Label, LabelGroup, SearchInput } from '@patternfly/react-core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { PageOf } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';
import { Field, type FieldProps } from './fields.tsx';
import { Failure } from './shown.tsx';
import { useSettled } from './use-settled.ts';

export interface Choice {
  id: string;
  name: string;
  /** Said beside it. */
  about?: string;
  /** Why it may not be chosen. */
  reason?: string | undefined;
}

interface PickerProps extends Omit<FieldProps, 'isDisabled'> {
  chosen: readonly Choice[];
  change: (chosen: Choice[]) => void;
  /** Those whose name has this in it, at most `MOST_FOUND`. */
  find: (name: string) => Promise<PageOf<Choice>>;
  /** Of the query. */
  kind: readonly string[];
  isSingle?: boolean;
  /** Nothing is offered before something is looked for. */
  isQuiet?: boolean;
}

export const MOST_FOUND = 10;
const TYPING_MS = 300;
// biome-ignore lint/suspicious/noTemplateCurlyInString: where the kit puts the number
const REMAINING = '${remaining}';

export function Picker(props: PickerProps) {
  const { id, label, chosen, change, isSingle = false, isQuiet = false } = props;
  const { texts } = useWords();
  const [name, setName] = useState('');
  const take = (choice: Choice) => change(isSingle ? [choice] : [...chosen, choice]);
  const drop = (gone: string) => change(chosen.filter(choice => choice.id !== gone));
  return (
    <Field {...props}>
      {chosen.length > 0 && (
        <LabelGroup
          numLabels={20}
          aria-label={texts.picker.chosen(label)}
          expandedText={texts.common.fewer}
          collapsedText={texts.common.others(REMAINING)}
        >
          {chosen.map(choice => (
            <Label
              key={choice.id}
              onClose={() => drop(choice.id)}
              closeBtnAriaLabel={texts.picker.drop(choice.name)}
            >
              {choice.name}
            </Label>
          ))}
        </LabelGroup>
      )}
      <SearchInput
        aria-label={label}
        placeholder={texts.list.search}
        resetButtonLabel={texts.list.clear}
        searchInputId={id}
        value={name}
        onChange={(_event, value) => setName(value)}
        onClear={() => setName('')}
      />
      {(name !== '' || !isQuiet) && <Found {...props} name={name} take={take} />}
    </Field>
  );
}

function Found({
  label,
  kind,
  find,
  chosen,
  name,
  take,
}: PickerProps & { name: string; take: (choice: Choice) => void }) {
  const { texts } = useWords();
  const asked = useSettled(name, TYPING_MS);
  const query = useQuery({
    queryKey: [...kind, 'found', asked],
    queryFn: () => find(asked),
    placeholderData: keepPreviousData,
  });
  if (query.data === undefined) return query.isError ? <Failure error={query.error} /> : null;
  const { count, results } = query.data;
  const others = results.filter(({ id }) => !chosen.some(choice => choice.id === id));
  return (
    <>
      <ul className="vk-found" aria-label={texts.picker.found(label)}>
        {others.map(choice => (
          <li key={choice.id}>
            <Button
              variant="link"
              isInline
              isAriaDisabled={choice.reason !== undefined}
              onClick={() => choice.reason === undefined && take(choice)}
            >
              {choice.name}
            </Button>{' '}
            <span className="vk-small">{choice.reason ?? choice.about}</span>
          </li>
        ))}
      </ul>
      <p className="vk-small" role="status">
        {results.length === 0 ? texts.list.empty : count > results.length ? texts.picker.more(count) : ''}
      </p>
    </>
  );
}
