ogspr bench env dmc:cartpole-swingup dmc:cheetah-run dmc:quadruped-walk dmc:humanoid-walk dmc:dog-run --steps 30 --rounds 7
