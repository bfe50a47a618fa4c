/** A form of several steps, each of which says when one may go on. */
import { ActionList, ActionListItem, Button, Title } from '@patternfly/react-core';
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { useWords } from '../texts/index.tsx';

export interface Step {
  key: string;
  name: string;
  /** What is asked for is there. */
  isReady: boolean;
  content: ReactNode;
}

interface StepsProps {
  /** Of the whole. */
  label: string;
  steps: readonly Step[];
  /** What the last button says and does. */
  submit: string;
  isBusy: boolean;
  act: () => void;
  cancel: () => void;
}

export function Steps({ label, steps, submit, isBusy, act, cancel }: StepsProps) {
  const { texts } = useWords();
  const [present, setPresent] = useState(0);
  const heading = useRef<HTMLHeadingElement>(null);
  const hasMoved = useRef(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each time that another step is shown
  useEffect(() => {
    if (hasMoved.current) heading.current?.focus();
    hasMoved.current = true;
  }, [present]);
  const step = steps[present];
  if (step === undefined) return null;
  const isLast = present === steps.length - 1;
  /** One may go back to any step, and on to those before which all is there. */
  const isOpen = (index: number) => index <= present || steps.slice(0, index).every(({ isReady }) => isReady);
  /** Enter in a field goes on, but begins nothing. By itself a browser would load the page anew, with nothing of what was chosen. */
  const goOn = (event: FormEvent) => {
    // that of a dialog comes here as well, from elsewhere in the page
    if (!event.currentTarget.contains(event.target as Node)) return;
    event.preventDefault();
    if (step.isReady && !isLast) setPresent(present + 1);
  };
  return (
    <>
      <nav aria-label={label}>
        <ol className="vk-steps">
          {steps.map(({ key, name }, index) => (
            <li key={key}>
              <Button
                variant={index === present ? 'secondary' : 'link'}
                isDisabled={!isOpen(index)}
                aria-current={index === present ? 'step' : undefined}
                onClick={() => setPresent(index)}
              >
                {index + 1}. {name}
              </Button>
            </li>
          ))}
        </ol>
      </nav>
      <Title headingLevel="h2" ref={heading} tabIndex={-1} className="vk-title vk-block">
        {step.name}
      </Title>
      <div onSubmit={goOn}>{step.content}</div>
      <ActionList className="vk-block vk-wrap">
        <ActionListItem>
          <Button
            isDisabled={!step.isReady || isBusy}
            isLoading={isLast && isBusy}
            spinnerAriaLabel={texts.loading}
            onClick={() => (isLast ? act() : setPresent(present + 1))}
          >
            {isLast ? submit : texts.common.next}
          </Button>
        </ActionListItem>
        <ActionListItem>
          <Button variant="secondary" isDisabled={present === 0} onClick={() => setPresent(present - 1)}>
            {texts.common.back}
          </Button>
        </ActionListItem>
        <ActionListItem>
          <Button variant="link" onClick={cancel}>
            {texts.common.cancel}
          </Button>
        </ActionListItem>
      </ActionList>
    </>
  );
}
