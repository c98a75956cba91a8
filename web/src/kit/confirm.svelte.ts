// Questions before something that cannot be undone.

export type Question = {
  title: string;
  text: string;
  action: string;
  /** Text of the button that leaves all as it is, if Cancel does not say it. */
  cancel?: string;
  danger?: boolean;
};

type Asked = Question & { answer: (yes: boolean) => void };

let asked = $state.raw<Asked>();

export const asking = {
  get question(): Asked | undefined {
    return asked;
  },
};

/** Asks, and resolves to whether the person agreed. */
export function confirm(question: Question): Promise<boolean> {
  asked?.answer(false);
  return new Promise((resolve) => {
    asked = {
      ...question,
      answer(yes) {
        asked = undefined;
        resolve(yes);
      },
    };
  });
}
